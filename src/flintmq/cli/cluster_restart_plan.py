"""`flintmq cluster restart-plan`: in which order nodes are started anew, and doing it."""

from __future__ import annotations

import click

from ..cluster_advice import RestartPlan, RestartStep, restart_steps, why_not_restart
from ..errors import InvalidRequest
from .cluster_change import cluster_now
from .cluster_restarting import RollingRestart
from .connecting import Target, run_async, server_options
from .shared import output_option, show


@click.command("restart-plan")
@click.option(
    "--run",
    "hook",
    metavar="COMMAND",
    help="Execute the plan: COMMAND restarts one node. {node} and {host} in it are replaced by the "
    "node's name and host.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for each node to restart and catch up.",
)
@output_option
@server_options
def command(target: Target, hook: str | None, wait: float, output: str) -> int:
    """Show in which order to restart the nodes of a cluster, for an upgrade or new settings.

    Followers come first, one at a time; each must catch up before the next one is restarted. The
    leader hands over and comes last. Clients are served throughout.

    --run executes the plan. COMMAND must return once it has initiated the restart. Stops at the
    first step that fails, and before a restart that would leave no majority.

    \b
    Examples:
      flintmq cluster restart-plan
      flintmq cluster restart-plan --run 'ssh {host} systemctl restart flintmq'
    """
    status = run_async(cluster_now(target))
    steps = restart_steps(status)
    why_not = why_not_restart(status)
    if hook is None:
        plan = RestartPlan(status.cluster, steps)
        show(output, plan, lambda: _print(steps, why_not))
        return 1 if why_not else 0
    if why_not:
        raise InvalidRequest(f"no node is restarted: {why_not}")
    restart = RollingRestart(target, hook, wait, tell=lambda text: click.echo(text, err=True))
    run_async(restart.run(status))
    after = run_async(cluster_now(target))
    return show(output, after, f"all {len(after.nodes)} nodes were restarted")


def _print(steps: list[RestartStep], why_not: str) -> None:
    for number, step in enumerate(steps, 1):
        click.echo(f"{number}. {_said(step)}")
    if why_not:
        click.echo(f"Not now: {why_not}.")


def _said(step: RestartStep) -> str:
    if step.do == "transfer":
        return f"flintmq cluster transfer {step.to}     ({step.node} hands over)"
    return f"restart {step.node}, and wait until `flintmq cluster status` shows it BEHIND 0"

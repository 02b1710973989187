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
    help="Carry the plan out: this command restarts one node. {node} and {host} in it are the "
    "node's name and the host of its address.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one node may take until it has caught up.",
)
@output_option
@server_options
def command(target: Target, hook: str | None, wait: float, output: str) -> int:
    """Show in which order to restart the nodes of a cluster, for an upgrade or new settings.

    Followers first, one after the other, each once the one before it has caught up; the node
    that leads comes last and hands over before it is stopped. Clients go on meanwhile.

    With --run, each step is carried out. COMMAND has to end when the node was told to start
    again. Stops at the first step that fails, and before a restart that would leave no
    majority.

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
        return f"flintmq cluster transfer {step.to}     ({step.node} leads no more)"
    return f"restart {step.node}, and wait until `flintmq cluster status` shows it BEHIND 0"

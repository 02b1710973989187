"""`flintmq cluster run`: all nodes of a cluster on this machine, under one supervisor."""

from __future__ import annotations

from pathlib import Path

import click

from ..daemon.supervising import ClusterPlan, Supervisor
from .connecting import run_async


@click.command("run")
@click.option(
    "--nodes", type=click.IntRange(1, 7), default=3, show_default=True, help="Number of nodes."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("cluster-data"),
    show_default=True,
    help="Directory for the data and logs of all nodes.",
)
@click.option(
    "--base-port",
    type=click.IntRange(0, 65_000),
    default=7600,
    show_default=True,
    help="Port of the first node; each next one adds 10. 0 picks free ports.",
)
def command(nodes: int, data_dir: Path, base_port: int) -> int:
    """Run a cluster on this machine until Ctrl-C.

    A line on stdout has the URL for clients, once there is a leader. Each node is a separate
    process; its log is NAME.log in the data directory. A node that exits is restarted. On
    Ctrl-C or SIGTERM, all nodes finish pending requests and stop.

    All copies are on this machine: this protects against a crash of a process, not against the
    loss of the machine. docs/cluster.md shows how to run nodes on several machines.

    \b
    Examples:
      flintmq cluster run
      flintmq cluster run --nodes 5 --data-dir /var/lib/flint-cluster --base-port 7700
    """
    plan = ClusterPlan.of(data_dir, nodes, base_port)
    supervisor = Supervisor(plan, tell=lambda text: click.echo(f"flintmq: {text}"))
    run_async(supervisor.run())
    return 0

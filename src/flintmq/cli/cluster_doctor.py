"""`flintmq cluster doctor`: what is wrong with a cluster."""

from __future__ import annotations

import click

from ..cluster_advice import Examination, examine
from .cluster_change import cluster_now
from .connecting import Target, run_async, server_options
from .shared import output_option, show

MARKS = {"ok": "ok   ", "warning": "warn ", "error": "BAD  "}


@click.command("doctor")
@output_option
@server_options
def command(target: Target, output: str) -> int:
    """Check a cluster: majority, disks, clocks, lag, versions.

    --server can be any node; the leader knows most. Each finding has a remedy.

    Exit codes: 0 no problems, 1 warnings, 2 errors.

    \b
    Examples:
      flintmq cluster doctor
      flintmq cluster doctor --server flint://127.0.0.1:7610 --output json
    """
    found = examine(run_async(cluster_now(target)))
    show(output, found, lambda: _print(found))
    if not found.is_well:
        return 2
    return 1 if any(finding.level == "warning" for finding in found.findings) else 0


def _print(found: Examination) -> None:
    click.echo(f"Cluster {found.cluster[:8]}:")
    for finding in found.findings:
        click.echo(f"  {MARKS[finding.level]} {finding.about}: {finding.text}")
        if finding.remedy:
            click.echo(f"         -> {finding.remedy}")

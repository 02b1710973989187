"""`flintmq serve`: a broker in a process of its own."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from ..daemon import DRAIN_SECONDS, PORT, Settings, parse_listen, run
from ..storage.fsync_policy import FsyncPolicy


@click.command("serve")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    envvar="FLINTMQ_DATA_DIR",
    help="Where everything is kept. Made if it is not there.",
)
@click.option(
    "--listen",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    envvar="FLINTMQ_LISTEN",
    metavar="HOST:PORT",
    help="Where clients connect. Port 0 takes any that is free.",
)
@click.option(
    "--fsync",
    default="always",
    show_default=True,
    envvar="FLINTMQ_FSYNC",
    metavar="POLICY",
    help="When the disk is waited for: always, every_n:<n>, interval:<ms> or never.",
)
@click.option(
    "--drain-seconds",
    default=DRAIN_SECONDS,
    show_default=True,
    type=click.FloatRange(min=0),
    envvar="FLINTMQ_DRAIN_SECONDS",
    help="How long what is under way may take at the end.",
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="FLINTMQ_LOG_LEVEL",
    help="What is told on stderr.",
)
def command(data_dir: Path, listen: str, fsync: str, drain_seconds: float, log_level: str) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    One line on stdout says when it is ready: everything is recovered, and clients can connect. At
    the end new publishes are refused, what is under way is finished, and everything is synced.
    Each option can also be given in the environment, as FLINTMQ_DATA_DIR and so on.

    \b
    Examples:
      flintmq serve --data-dir /var/lib/flint
      flintmq serve --data-dir /var/lib/flint --listen 0.0.0.0:7600 --fsync interval:10
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = Settings(
        data_dir=data_dir,
        listen=parse_listen(listen),
        fsync=FsyncPolicy.parse(fsync),
        drain_seconds=drain_seconds,
    )

    def ready(address: tuple[str, int]) -> None:
        host, port = address
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        click.echo(f"flintmq: ready at flint://{shown}, data in {data_dir}")

    run(settings, ready)
    return 0

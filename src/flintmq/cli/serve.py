"""`flintmq serve`: a broker in a process of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import click

from ..daemon import DRAIN_SECONDS, PORT, Settings, is_loopback, parse_listen, run
from ..servers.limits import Limits
from ..storage.fsync_policy import FsyncPolicy

LIMITS = Limits()
FRAME_BYTES_MIN = 64 * 1024
FRAME_BYTES_MOST = LIMITS.frame_bytes


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
    "--max-connections",
    default=LIMITS.connections,
    show_default=True,
    type=click.IntRange(min=1),
    envvar="FLINTMQ_MAX_CONNECTIONS",
    help="Clients beyond that are turned away.",
)
@click.option(
    "--max-frame-bytes",
    default=LIMITS.frame_bytes,
    show_default=True,
    type=click.IntRange(min=FRAME_BYTES_MIN, max=FRAME_BYTES_MOST),
    envvar="FLINTMQ_MAX_FRAME_BYTES",
    help="The largest batch that can be published.",
)
@click.option(
    "--max-in-flight-bytes",
    default=LIMITS.in_flight_bytes,
    show_default=True,
    type=click.IntRange(min=1),
    envvar="FLINTMQ_MAX_IN_FLIGHT_BYTES",
    help="What a client may have on its way to the disk before it is held back.",
)
@click.option(
    "--idle-timeout",
    default=LIMITS.idle_seconds,
    show_default=True,
    type=click.FloatRange(min=1),
    envvar="FLINTMQ_IDLE_TIMEOUT",
    metavar="SECONDS",
    help="Who says nothing for so long is disconnected. Clients ping by themselves.",
)
@click.option(
    "--handshake-timeout",
    default=LIMITS.handshake_seconds,
    show_default=True,
    type=click.FloatRange(min=0.1),
    envvar="FLINTMQ_HANDSHAKE_TIMEOUT",
    metavar="SECONDS",
    help="How long a client may take to say who it is.",
)
@click.option(
    "--auth",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "required", "off"]),
    envvar="FLINTMQ_AUTH",
    help="Whether clients need a key: auto asks once there is one; see `flintmq key --help`.",
)
@click.option(
    "--keys-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="FLINTMQ_KEYS_FILE",
    help="Where keys are.  [default: keys.json in the data directory]",
)
@click.option(
    "--log-level",
    default="warning",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="FLINTMQ_LOG_LEVEL",
    help="What is told on stderr.",
)
def command(
    data_dir: Path,
    listen: str,
    fsync: str,
    drain_seconds: float,
    max_connections: int,
    max_frame_bytes: int,
    max_in_flight_bytes: int,
    idle_timeout: float,
    handshake_timeout: float,
    auth: Literal["auto", "required", "off"],
    keys_file: Path | None,
    log_level: str,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    One line on stdout says when it is ready: everything is recovered, and clients can connect. At
    the end new publishes are refused, what is under way is finished, and everything is synced.
    A second SIGTERM or Ctrl-C ends it at once. Each option can also be given in the environment, as
    FLINTMQ_DATA_DIR and so on.

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
        auth=auth,
        keys_file=keys_file,
        limits=Limits(
            connections=max_connections,
            frame_bytes=max_frame_bytes,
            in_flight_bytes=max_in_flight_bytes,
            idle_seconds=idle_timeout,
            # Clients ping in time to be heard, also if one ping is late.
            ping_seconds=min(LIMITS.ping_seconds, idle_timeout / 2.5),
            handshake_seconds=handshake_timeout,
        ),
    )

    def ready(address: tuple[str, int]) -> None:
        host, port = address
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if not is_loopback(host):
            click.echo(
                f"flintmq: warning: {shown} can be reached from other machines, and there is no "
                "authentication: whoever connects may read, publish and delete",
                err=True,
            )
        click.echo(f"flintmq: ready at flint://{shown}, data in {data_dir}")

    run(settings, ready)
    return 0

"""`flintmq serve`: run a broker. Its options are the table of settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from socket import AI_PASSIVE, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, getaddrinfo, socket

import click

from ..config.kinds import shown_address
from ..config.settings import Resolved, resolve
from ..config.table import BY_NAME, Config
from ..daemon.exposure import Exposed, check_exposure
from ..daemon.process import run
from ..errors import Disconnected
from ..observe.logs import configure
from .config_options import GroupedCommand, config_options, configured, tell_doubts, tell_problems
from .exit_codes import NotStarted


@click.command("serve", cls=GroupedCommand)
@config_options()
def command(config_file: Path | None, flags: dict[str, str | bool]) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    A line on stdout says when it is ready: recovery is complete and clients can connect. On
    shutdown the broker rejects new publishes, finishes pending ones and syncs to disk. A second
    SIGTERM or Ctrl-C stops it immediately.

    Each option can also be set in a file (max_connections = 100) and in the environment
    (FLINTMQ_MAX_CONNECTIONS=100). Flags take precedence over the environment, which takes
    precedence over the file. SIGHUP reloads the configuration. `flintmq config show` prints
    where each setting comes from.

    \b
    Examples:
      flintmq serve
      flintmq serve --data-dir /var/lib/flint
      flintmq serve --data-dir /var/lib/flint --fsync interval:10 --max-frame-bytes 8MiB
      flintmq serve --config /etc/flintmq.toml --http :7601
      FLINTMQ_DATA_DIR=/var/lib/flint flintmq serve
    """
    return serve_from(
        partial(resolve, file=config_file, environment=os.environ, flags=flags),
        tells_directory=True,
    )


def serve_from(reread: Callable[[], Resolved], *, tells_directory: bool = False) -> int:
    """Run a broker with the configuration that `reread` returns, now and on each SIGHUP."""
    resolved = reread()
    config = configured(resolved)
    if config.data_dir.is_file():
        tell_problems([f"data_dir {config.data_dir} is a file, not a directory"])
        return 2
    tell_doubts(resolved)
    if tells_directory and "data_dir" not in resolved.sources:
        click.echo(
            f"flintmq: storing data in ./{config.data_dir}; choose another directory with "
            "--data-dir",
            err=True,
        )
    return serve(config, lambda: reread().config())


def check_free(config: Config) -> None:
    """Raises if the broker cannot listen on its addresses, before anything is opened."""
    for name, address in config.addresses().items():
        if not address[1]:
            continue
        try:
            family, kind, _, _, place = getaddrinfo(
                address[0], address[1], type=SOCK_STREAM, flags=AI_PASSIVE
            )[0]
            with socket(family, kind) as probe:
                probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            taken = error.errno == EADDRINUSE
            why = "in use by another program" if taken else f"not available: {error.strerror}"
            raise NotStarted(
                f"{shown_address(address)} is {why}; choose another address with "
                f"{BY_NAME[name].flag}"
            ) from None


def serve(config: Config, reread: Callable[[], Config]) -> int:
    """Run a broker with a complete configuration."""
    has_keys = config.keys_path.is_file() or bool(config.blip_api_keys)
    try:
        exposed = check_exposure(config, has_keys=has_keys)
    except Exposed as error:
        tell_problems([str(error)])
        return 2
    for fault in exposed:
        click.echo(f"flintmq: warning: {fault}", err=True)
    check_free(config)
    end = "" if config.tls_cert is None else "s"

    def tell(what: str, addresses: dict[str, tuple[str, int]]) -> None:
        shown = ", ".join(f"{name}{end}://{shown_address(at)}" for name, at in addresses.items())
        click.echo(f"flintmq: {what} at {shown}, data in {config.data_dir.absolute()}")

    def ready(address: tuple[str, int], others: dict[str, tuple[str, int]]) -> None:
        tell("ready", {"flint": address, **others})
        if "http" in others:
            click.echo(f"flintmq: console at http{end}://{shown_address(others['http'])}/")

    def blank(others: dict[str, tuple[str, int]]) -> None:
        tell("waiting for Bootstrap", others)

    logs = configure(format=config.log_format, level=config.log_level, levels=config.log_levels)
    try:
        run(config, ready, reread, logs, blank)
    except Disconnected as error:
        raise NotStarted(str(error)) from None
    finally:
        logs.close()
    return 0

"""`flintmq hermesd`: a broker that is started as HermesMQ's daemon is, with its flags and
environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import click

from ..config import Config
from ..config_kinds import shown_address
from ..daemon import run
from ..errors import Disconnected
from ..exposure import Exposed, check_exposure
from ..logs import configure
from ..settings import Resolved, resolve
from .config_options import configured, tell_problems
from .exit_codes import NotStarted

PREFIX = "HERMESMQ_"


def _option(
    flag: str, default: str, help: str
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    variable = PREFIX + flag.strip("-").replace("-", "_").upper()
    return click.option(
        flag, default=None, metavar="VALUE", help=f"{help}  [{variable}, default: {default}]"
    )


@click.command("hermesd")
@_option("--node-id", "1", "The number of this node.")
@_option("--data-dir", "data", "Where everything is kept.")
@_option("--client-addr", "127.0.0.1:7600", "Where clients connect, HermesMQ's and FlintMQ's.")
@_option("--peer-addr", "127.0.0.1:7700", "Taken and not used: a single node has no peers.")
@_option("--metrics-addr", "127.0.0.1:9600", "Where /health, /ready and /metrics are served.")
@_option("--metrics-enabled", "true", "Whether /metrics is served: true or false.")
@click.option("--insecure", is_flag=True, help="Allow addresses that other machines can reach.")
def command(insecure: bool, **given: str | None) -> int:
    """Run a broker for HermesMQ's clients, told what to do as hermesmqd is.

    A flag counts before its variable HERMESMQ_*. Every other setting of `flintmq serve` is taken
    from FLINTMQ_* (such as FLINTMQ_FSYNC). SIGTERM and Ctrl-C end it.

    \b
    Examples:
      flintmq hermesd --data-dir /var/lib/flint
      flintmq hermesd --node-id 1 --client-addr 127.0.0.1:7600 --metrics-addr 127.0.0.1:9600
      HERMESMQ_DATA_DIR=/var/lib/flint flintmq hermesd
    """
    flags = flags_of(given, os.environ)
    if insecure:
        flags["insecure"] = True
    reread: Callable[[], Resolved] = partial(
        resolve, file=None, environment=os.environ, flags=flags
    )
    config = configured(reread())
    try:
        faults = check_exposure(config, has_keys=config.keys_path.is_file())
    except Exposed as error:
        tell_problems([str(error)])
        return 2
    for fault in faults:
        click.echo(f"flintmq: warning: {fault}", err=True)

    def ready(address: tuple[str, int], others: dict[str, tuple[str, int]]) -> None:
        shown = ", ".join(f"{name}://{shown_address(one)}" for name, one in others.items())
        click.echo(f"flintmq: ready at {shown}, data in {config.data_dir}")

    def reread_config() -> Config:
        return reread().config()

    logs = configure(format=config.log_format, level=config.log_level, levels=config.log_levels)
    try:
        run(config, ready, reread_config, logs)
    except Disconnected as error:
        raise NotStarted(str(error)) from None
    finally:
        logs.close()
    return 0


DEFAULTS = {
    "node_id": "1",
    "data_dir": "data",
    "client_addr": "127.0.0.1:7600",
    "metrics_addr": "127.0.0.1:9600",
    "metrics_enabled": "true",
}
OURS = {
    "node_id": "hermes_node_id",
    "data_dir": "data_dir",
    "client_addr": "hermes",
    "metrics_addr": "http",
    "metrics_enabled": "metrics",
}


def flags_of(given: dict[str, str | None], environment: Mapping[str, str]) -> dict[str, str | bool]:
    """HermesMQ's flags and variables as settings of ours."""
    flags: dict[str, str | bool] = {}
    for name, default in DEFAULTS.items():
        # Their image sets a variable to nothing where it means the default.
        said = given[name] or environment.get(PREFIX + name.upper(), "").strip() or default
        flags[OURS[name]] = said
    if "FLINTMQ_LISTEN" not in environment:
        flags["listen"] = "127.0.0.1:0"  # the native protocol is served at client-addr, too
    return flags

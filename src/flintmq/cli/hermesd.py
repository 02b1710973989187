"""`flintmq hermesd`: a broker with the flags and environment variables of HermesMQ's daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from .. import __version__
from ..frontends.hermes.settings import DEFAULTS, OURS, PREFIX, resolve_hermes
from .config_options import GroupedCommand, config_options
from .serve import serve_from


def _option(flag: str, help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    name = flag.strip("-").replace("-", "_")
    default = DEFAULTS.get(OURS[name], "off")
    return click.option(
        flag,
        name,
        default=None,
        metavar="VALUE",
        help=f"{help}  [{PREFIX}{name.upper()}, default: {default}]",
    )


@click.command("hermesd", cls=GroupedCommand)
@_option("--node-id", "Node id of this broker.")
@_option("--client-addr", "Address for clients of HermesMQ and FlintMQ.")
@_option("--peer-addr", "Address for other nodes; clients form the cluster by Bootstrap.")
@_option("--metrics-addr", "HTTP address for /health, /ready, /metrics and FlintMQ's API.")
@_option("--metrics-enabled", "Serve /metrics: true or false.")
@config_options()
@click.version_option(__version__, "--version", "-V", message="flintmq hermesd %(version)s")
def command(config_file: Path | None, flags: dict[str, str | bool], **theirs: str | None) -> int:
    """Run a broker for HermesMQ clients, configured like hermesmqd.

    HermesMQ's flags come first below. --data-dir can also be set by HERMESMQ_DATA_DIR; its
    default is "data". All options of `flintmq serve` work too, as flags and FLINTMQ_ variables.
    Flags take precedence over FLINTMQ_*, which take precedence over HERMESMQ_*. Stop it with
    SIGTERM or Ctrl-C.

    \b
    Examples:
      flintmq hermesd --data-dir /var/lib/flint
      flintmq hermesd --node-id 1 --client-addr 127.0.0.1:7600 --metrics-addr 127.0.0.1:9600
      flintmq hermesd --node-id 2 --client-addr 127.0.0.1:7610 --peer-addr 127.0.0.1:7710
      HERMESMQ_DATA_DIR=/var/lib/flint flintmq hermesd --fsync interval:10
    """
    return serve_from(
        partial(
            resolve_hermes, file=config_file, environment=os.environ, flags=flags, theirs=theirs
        )
    )


for _parameter in command.params:
    # What has a name of HermesMQ's is shown by that, and the rest as it is for this command.
    if isinstance(_parameter, click.Option):
        if _parameter.name == "data_dir":
            _parameter.help = f"Data directory.  [{PREFIX}DATA_DIR, default: data]"
        elif _parameter.name == "listen":
            _parameter.help = "Additional address for FlintMQ clients.  [default: any free port]"
        elif _parameter.name in OURS.values():
            _parameter.hidden = True

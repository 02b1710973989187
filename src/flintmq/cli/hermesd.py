"""`flintmq hermesd`: a broker that is started as HermesMQ's daemon is, with its flags and
environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from .. import __version__
from ..hermes_settings import DEFAULTS, OURS, PREFIX, resolve_hermes
from ..settings import Resolved
from .config_options import GroupedCommand, config_options, configured, tell_problems
from .serve import serve


def _option(flag: str, help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    name = flag.strip("-").replace("-", "_")
    default = DEFAULTS[OURS[name]] if name in OURS else "127.0.0.1:7700"
    return click.option(
        flag,
        name,
        default=None,
        metavar="VALUE",
        help=f"{help}  [{PREFIX}{name.upper()}, default: {default}]",
    )


@click.command("hermesd", cls=GroupedCommand)
@_option("--node-id", "The number of this node.")
@_option("--client-addr", "Where clients connect, HermesMQ's and FlintMQ's.")
@_option("--peer-addr", "Taken and not used: a single node has no peers.")
@_option("--metrics-addr", "Where /health, /ready and /metrics are served, and FlintMQ's API.")
@_option("--metrics-enabled", "Whether /metrics is served: true or false.")
@config_options
@click.version_option(__version__, "--version", "-V", message="flintmq hermesd %(version)s")
def command(config_file: Path | None, flags: dict[str, str | bool], **theirs: str | None) -> int:
    """Run a broker for HermesMQ's clients, told what to do as hermesmqd is.

    HermesMQ's flags come first below; --data-dir is HERMESMQ_DATA_DIR, too, and "data" unless told
    otherwise. All of `flintmq serve` is there as well, in flags and FLINTMQ_ variables. A flag
    counts before FLINTMQ_*, that before HERMESMQ_*. SIGTERM and Ctrl-C end it.

    \b
    Examples:
      flintmq hermesd --data-dir /var/lib/flint
      flintmq hermesd --node-id 1 --client-addr 127.0.0.1:7600 --metrics-addr 127.0.0.1:9600
      HERMESMQ_DATA_DIR=/var/lib/flint flintmq hermesd --fsync interval:10
    """
    reread: Callable[[], Resolved] = partial(
        resolve_hermes, file=config_file, environment=os.environ, flags=flags, theirs=theirs
    )
    resolved = reread()
    config = configured(resolved)
    if config.data_dir.is_file():
        tell_problems([f"data_dir {config.data_dir} is a file; it has to be a directory"])
        return 2
    for doubt in resolved.doubts:
        click.echo(f"flintmq: warning: {doubt}", err=True)
    return serve(config, lambda: reread().config())


for _parameter in command.params:
    # What has a name of HermesMQ's is shown by that, and the rest as it is for this command.
    if isinstance(_parameter, click.Option):
        if _parameter.name == "data_dir":
            _parameter.help = f"Where everything is kept.  [{PREFIX}DATA_DIR, default: data]"
        elif _parameter.name == "listen":
            _parameter.help = "One more place for FlintMQ's clients.  [default: any free port]"
        elif _parameter.name in OURS.values():
            _parameter.hidden = True

"""`flintmq blipd`: a broker that reads BlipMQ's configuration."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from ..config.table import BY_NAME
from ..frontends.blip.settings import DEFAULTS, resolve_blip
from .config_options import GroupedCommand, config_options
from .serve import serve_from

SHOWN = {name: BY_NAME[name].kind.to_text(value) for name, value in DEFAULTS.items()}


@click.command("blipd", cls=GroupedCommand)
@config_options("BLIPMQ_CONFIG", SHOWN)
def command(config_file: Path | None, flags: dict[str, str | bool]) -> int:
    """Run a broker with BlipMQ's configuration, for BlipMQ's clients.

    --config is a BlipMQ file: TOML or YAML, with the keys of its first or second generation.
    Environment variables work as in BlipMQ: BLIPMQ_CONFIG, BLIPMQ_BIND_ADDR, BLIPMQ_PORT and so
    on, or CONFIG, BIND_ADDR, PORT ... as in its readme. The default ports are BlipMQ's: 5555
    for clients of all three protocols, 9100 for /metrics. All options of `flintmq serve` work
    too, as flags and FLINTMQ_ variables.

    \b
    Examples:
      flintmq blipd --config blipmq.toml
      BLIPMQ_ALLOWED_API_KEYS=dev-key BLIPMQ_PORT=5555 flintmq blipd
      flintmq blipd --data-dir /var/lib/blip --fsync interval:10
    """
    return serve_from(partial(resolve_blip, file=config_file, environment=os.environ, flags=flags))

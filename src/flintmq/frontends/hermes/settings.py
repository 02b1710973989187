"""HermesMQ's flags, variables and defaults as FlintMQ settings.

Flags take precedence over variables, FLINTMQ_ variables over HermesMQ's, these over a FlintMQ file,
and the file over the defaults of `hermesmqd`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...config.between import HERMES_NODE, hermes_node_name
from ...config.kinds import UnfitValue
from ...config.mistakes import why_not
from ...config.settings import Resolved, resolve
from ...config.table import BY_NAME, Config, Setting

PREFIX = "HERMESMQ_"
OURS = {
    "node_id": "hermes_node_id",
    "data_dir": "data_dir",
    "client_addr": "hermes",
    "peer_addr": "peer_listen",
    "metrics_addr": "http",
    "metrics_enabled": "metrics",
}
"""HermesMQ's names and ours. Who has no `peer_addr` runs alone."""
DEFAULTS = {
    "hermes_node_id": "1",
    "data_dir": "data",
    "hermes": "127.0.0.1:7600",
    "http": "127.0.0.1:9600",
    "metrics": "true",
    "listen": "127.0.0.1:0",  # the native protocol is served where HermesMQ's is, too
}
LEVELS = {"error": "error", "warn": "warning", "info": "info", "debug": "debug", "trace": "debug"}
"""Levels of RUST_LOG."""


def resolve_hermes(
    *,
    file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, str | bool],
    theirs: Mapping[str, str | None],
) -> Resolved:
    """Merge FlintMQ's and HermesMQ's settings; `theirs` are HermesMQ's flags by name."""
    resolved = resolve(file=file, environment=environment, flags=flags)
    for name, ours in OURS.items():
        setting, variable = BY_NAME[ours], PREFIX + name.upper()
        flag = theirs.get(name)
        if flag is not None:
            _take(resolved, setting, flag, f"--{name.replace('_', '-')}")
        # Their image sets a variable to nothing where it means the default.
        elif (text := environment.get(variable, "").strip()) and not _is_said(resolved, setting):
            _take(resolved, setting, text, variable)
    level = LEVELS.get(environment.get("RUST_LOG", "").strip().lower())
    if level is not None and not _is_said(resolved, BY_NAME["log_level"]):
        _take(resolved, BY_NAME["log_level"], level, "RUST_LOG")
    if resolved.values.get("peer_listen") is not None and "node_name" not in resolved.values:
        id = resolved.values.get("hermes_node_id", int(DEFAULTS["hermes_node_id"]))
        name, source = hermes_node_name(id), resolved.sources["peer_listen"]
        _take(resolved, BY_NAME["node_name"], name, source)
    for ours, text in DEFAULTS.items():
        if ours not in resolved.values:
            _take(resolved, BY_NAME[ours], text, "HermesMQ's default")
    return resolved


def id_in(name: str) -> int:
    """The node id in the name of a node; 0: the name is not of that form."""
    number = name.removeprefix(HERMES_NODE)
    return int(number) if name.startswith(HERMES_NODE) and number.isdecimal() else 0


def is_hermes_node(config: Config) -> bool:
    """Whether it is a node as HermesMQ has them: known by its node id."""
    return config.hermes is not None and config.node_name == hermes_node_name(config.hermes_node_id)


def _is_said(resolved: Resolved, setting: Setting) -> bool:
    """Whether it was set by a FlintMQ flag or variable."""
    return resolved.sources.get(setting.name) in (setting.flag, setting.variable)


def _take(resolved: Resolved, setting: Setting, text: str, source: str) -> None:
    try:
        resolved.take(setting.name, setting.from_text(text), source)
    except UnfitValue as unfit:
        resolved.problems.append(f"{source}: {why_not(setting, text, unfit)}")

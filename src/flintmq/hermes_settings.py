"""HermesMQ's flags, variables and defaults as settings of ours.

A flag counts before every variable, our own variables before HermesMQ's, these before a file of
ours, and that before what `hermesmqd` has where nobody says anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .config import BY_NAME, Setting, why_not
from .config_kinds import Unfit
from .settings import Resolved, resolve

PREFIX = "HERMESMQ_"
OURS = {
    "node_id": "hermes_node_id",
    "data_dir": "data_dir",
    "client_addr": "hermes",
    "metrics_addr": "http",
    "metrics_enabled": "metrics",
}
"""What each of their names is called here; `peer_addr` is none: one node has no peers."""
DEFAULTS = {
    "hermes_node_id": "1",
    "data_dir": "data",
    "hermes": "127.0.0.1:7600",
    "http": "127.0.0.1:9600",
    "metrics": "true",
    "listen": "127.0.0.1:0",  # the native protocol is served where HermesMQ's is, too
}
LEVELS = {"error": "error", "warn": "warning", "info": "info", "debug": "debug", "trace": "debug"}
"""Of RUST_LOG."""


def resolve_hermes(
    *,
    file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, str | bool],
    theirs: Mapping[str, str | None],
) -> Resolved:
    """Put together what was said in our words and in theirs; `theirs` are their flags by name."""
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
    for ours, text in DEFAULTS.items():
        if ours not in resolved.values:
            _take(resolved, BY_NAME[ours], text, "HermesMQ's default")
    return resolved


def _is_said(resolved: Resolved, setting: Setting) -> bool:
    """Whether it was said by a flag or a variable of ours."""
    return resolved.sources.get(setting.name) in (setting.flag, setting.variable)


def _take(resolved: Resolved, setting: Setting, text: str, source: str) -> None:
    try:
        resolved.take(setting.name, setting.from_text(text), source)
    except Unfit as unfit:
        resolved.problems.append(f"{source}: {why_not(setting, text, unfit)}")

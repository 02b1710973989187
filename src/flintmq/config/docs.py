"""The table of settings as pages: the reference in the docs, and a commented sample file."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from .kinds import Number, TableKind
from .table import SETTINGS, Setting

PAGE = "docs/reference/configuration.md"
BEGIN, END = "<!-- made by scripts/make-docs -->", "<!-- end of what is made -->"
WIDTH = 98


def with_tables(page: str) -> str:
    return renewed(PAGE, page, tables())


def renewed(name: str, page: str, made: str) -> str:
    """A page whose part between the markers is replaced by what was made."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{name} has lost its markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def tables() -> str:
    """A table for each group of settings, as Markdown."""
    parts = []
    for group, settings in itertools.groupby(SETTINGS, lambda setting: setting.group):
        rows = [f"## {group}", "", "| setting | default | what it is |", "|---|---|---|"]
        rows += [_row(setting) for setting in settings]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    allowed = _allowed(setting).replace("|", "\\|")
    marks = " ↻" if setting.reload else ""
    marks += " (secret: no flag)" if setting.secret else ""
    said = f"{setting.help} *{allowed}.*".replace("<", "&lt;")
    return f"| `{setting.name}`{marks} | {_default(setting)} | {said} |"


def _allowed(setting: Setting) -> str:
    kind = setting.kind
    text = kind.in_short if isinstance(kind, Number) else kind.allowed
    return text[0].upper() + text[1:]


def _default(setting: Setting) -> str:
    shown = setting.default_shown
    in_words = setting.default_text or shown == "empty"
    return shown if in_words else f"`{shown}`"


# --- a file to begin with


def sample(format: str) -> str:
    """A TOML or YAML file with every setting at its default, commented out."""
    head = (
        "Configuration of a FlintMQ broker: flintmq serve --config FILE. Commented "
        "settings show their default. Environment variables (FLINTMQ_ and the name in "
        "capitals) and flags take precedence over this file. Settings marked (reload) can "
        "be changed while the broker runs: edit them here and send SIGHUP. Paths are "
        "relative to this file. Write sizes as 64KiB, 16MiB, 1GiB, and times as 500ms, "
        "30s, 5m, 2h, 1d."
    )
    lines = [*_comment(head), ""]
    tables: list[Setting] = []
    for group, settings in itertools.groupby(SETTINGS, lambda setting: setting.group):
        lines += [f"# --- {group}", ""]
        for setting in settings:
            if isinstance(setting.kind, TableKind):
                tables.append(setting)  # in TOML nothing can follow a table but what is in it
            else:
                mark = "" if setting.name in SAID else "#"
                lines += [*_about(setting), f"{mark}{_assignment(setting, format)}", ""]
    for setting in tables:
        lines += [*_about(setting), *_table(setting, format), ""]
    return "\n".join(lines).rstrip() + "\n"


def _about(setting: Setting) -> list[str]:
    mark = " (reload)" if setting.reload else ""
    said = f"  Default: {setting.default_text}." if setting.default_text else ""
    return _comment(f"{setting.help} {_allowed(setting)}.{said}{mark}")


def _assignment(setting: Setting, format: str) -> str:
    value = SAMPLE_VALUES.get(setting.name) or setting.kind.to_plain(setting.default)
    if isinstance(setting.kind, Number) and setting.default_shown != str(value):
        value = setting.default_shown if setting.kind.unit == "bytes" else value
    return f"{setting.name}{' = ' if format == 'toml' else ': '}{_literal(value)}"


def _table(setting: Setting, format: str) -> Iterator[str]:
    name, value = SAMPLE_ENTRIES[setting.name]
    if format == "toml":
        yield f"#[{setting.name}]"
        yield f"#{name} = {_literal(value)}"
    else:
        yield f"#{setting.name}:"
        yield f"#  {name}: {_literal(value)}"


SAID = frozenset({"data_dir"})
"""Settings that the sample file sets: every broker in production needs its own data directory."""

SAMPLE_VALUES = {"data_dir": "/var/lib/flint", "keys_file": "/var/lib/flint/keys.json"}
"""Sample values for settings whose default cannot be written down."""

SAMPLE_ENTRIES: dict[str, tuple[str, Any]] = {
    "topic_defaults": ("retention_bytes", "10GiB"),
    "log_levels": ('"flintmq.net.server"', "info"),
}


def _literal(value: Any) -> str:
    """What TOML and YAML read alike: JSON's strings, numbers and booleans."""
    return json.dumps(value)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")

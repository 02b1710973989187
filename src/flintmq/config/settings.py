"""Where a broker's configuration comes from: defaults, a file, the environment, flags; later ones
take precedence. All errors are reported at once, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest, MissingExtra
from .between import problems_between
from .files import ConfigEntry, FileUnreadable, read_entries
from .kinds import TableKind, UnfitValue, flat
from .mistakes import nearest, why_not
from .table import BY_NAME, SETTINGS, Config, Setting, variable_of

FILE_VARIABLE = variable_of("config")


class ConfigInvalid(InvalidRequest):
    """The configuration is invalid; `problems` has one line per error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(slots=True)
class Resolved:
    """The values that were set, where, and what is wrong with them."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Warnings: not errors, but probably mistakes."""

    def take(self, name: str, value: Any, source: str) -> None:
        self.values[name], self.sources[name] = value, source

    def all_values(self) -> dict[str, Any]:
        """The values, with defaults."""
        defaults = {s.name: s.default for s in SETTINGS}
        return {**defaults, **self.values}

    def all_problems(self) -> list[str]:
        """All errors, of single values and between them."""
        return [*self.problems, *problems_between(self.all_values())]

    def config(self) -> Config:
        """The configuration. Raises an error with everything that is wrong."""
        problems = self.all_problems()
        if problems:
            raise ConfigInvalid(problems)
        return Config(**self.values, sources=self.sources)


def resolve(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | bool] | None = None,
) -> Resolved:
    """Merge all sources. `file` takes precedence over FLINTMQ_CONFIG."""
    environment = environment or {}
    resolved = Resolved()
    if file is None and (named := environment.get(FILE_VARIABLE)):
        file = Path(named)
    if file is not None:
        _take_file(resolved, file)
    _take_environment(resolved, environment)
    for name, given in (flags or {}).items():
        setting = BY_NAME[name]
        _take_text(resolved, setting, given, setting.flag)
    return resolved


def _take_text(resolved: Resolved, setting: Setting, given: str | bool, source: str) -> None:
    try:
        value = given if isinstance(given, bool) else setting.from_text(given)
    except UnfitValue as unfit:
        resolved.problems.append(f"{source}: {why_not(setting, given, unfit)}")
    else:
        resolved.take(setting.name, value, source)


def _take_environment(resolved: Resolved, environment: Mapping[str, str]) -> None:
    for setting in SETTINGS:
        # Containers hand on variables that nobody has set as empty ones: nothing is said by that.
        if text := environment.get(setting.variable, "").strip():
            _take_text(resolved, setting, text, setting.variable)
    # Others may have set what begins like this for ends of their own: it is told, and no error.
    known = {setting.variable for setting in SETTINGS}
    for variable in sorted(environment):
        if variable.startswith("FLINTMQ_") and variable not in known | OTHER_VARIABLES:
            if _OF_KUBERNETES.fullmatch(variable):
                continue
            meant = nearest(variable.removeprefix("FLINTMQ_"))
            remedy = "" if meant is None else f"; did you mean {variable_of(meant)}?"
            resolved.doubts.append(f"{variable} is not a setting and is ignored{remedy}")


OTHER_VARIABLES = frozenset(
    {
        FILE_VARIABLE,
        "FLINTMQ_SERVER",
        "FLINTMQ_CONTEXT",
        "FLINTMQ_CONTEXTS",
        "FLINTMQ_API_KEY",
        "FLINTMQ_API_KEY_FILE",
        "FLINTMQ_TLS_CA",
        "FLINTMQ_TLS_CLIENT_CERT",
        "FLINTMQ_TLS_CLIENT_KEY",
        "FLINTMQ_TLS_VERIFY",
        "FLINTMQ_PURE",
        "FLINTMQ_PYZ_CACHE",
        "FLINTMQ_SPARK_PARALLELISM",  # set for Spark's workers by the driver
    }
)
"""Variables of clients, commands and the single-file build."""

_OF_KUBERNETES = re.compile(r"FLINTMQ_(.*_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_\w+)?)")
"""Variables that Kubernetes sets in every pod of a namespace with a service named flintmq."""


# --- files


def _take_file(resolved: Resolved, path: Path) -> None:
    try:
        entries = read_entries(path)
    except (FileUnreadable, MissingExtra) as error:
        resolved.problems.append(str(error))
        return
    for entry in entries:
        place = f"{path}:{entry.line}"
        setting = BY_NAME.get(entry.key)
        if setting is None:
            resolved.problems.append(f"{place}: {unknown(entry.key)}")
            continue
        if isinstance(setting.kind, TableKind) and isinstance(entry.value, Mapping):
            problems = list(_table_problems(path, setting.kind, entry))
            if problems:
                resolved.problems += problems
                continue
        try:
            value = setting.from_value(entry.value)
        except UnfitValue as unfit:
            resolved.problems.append(f"{place}: {why_not(setting, entry.value, unfit)}")
            continue
        if isinstance(value, Path):
            # As a reader of the file would expect, wherever the broker is started from.
            value = path.parent / value
        resolved.take(setting.name, value, place)


def _table_problems(path: Path, kind: TableKind, entry: ConfigEntry) -> Iterator[str]:
    """All errors inside a table, each with its own line."""
    for name, value in flat(entry.value).items():
        place = f"{path}:{entry.inner_lines.get(name, entry.line)}"
        known = kind.known_names
        if name in BY_NAME and name not in known:
            yield (
                f"{place}: {name} is a top-level setting, not part of {entry.key}: write "
                "it before the first table"
            )
            continue
        if known and name not in known:
            yield f"{place}: {unknown(name, entry.key, known)}"
            continue
        try:
            kind.entry(name, value)
        except UnfitValue as unfit:
            yield f"{place}: {entry.key}: {name} must be {unfit}, not {value!r}"


def unknown(key: str, table: str = "", known: Any = None) -> str:
    """The error text for an unknown key."""
    names = tuple(BY_NAME) if known is None else known
    meant = nearest(key, names)
    remedy = f"did you mean {meant}?" if meant else f"known: {', '.join(names)}"
    what = f"{table} has no {key!r}" if table else f"{key} is not a setting"
    return f"{what}; {remedy}"

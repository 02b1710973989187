"""The metrics as a table of the docs: what `/metrics` shows and what the page says are one."""

from __future__ import annotations

from importlib import import_module

from ...config.docs import renewed
from ..front_end import FRONT_ENDS
from .collectors import GROUPS as COMMON
from .exposition import Family, Table

PAGE = "docs/reference/metrics.md"

GROUPS: dict[str, Table] = COMMON | {
    f"{one.clients}, where `{one.name}` is set": import_module(
        f"..{one.name}.metrics", __package__
    ).FAMILIES
    for one in FRONT_ENDS
}


def with_metrics(page: str) -> str:
    return renewed(PAGE, page, tables())


def tables() -> str:
    parts = []
    for group, families in GROUPS.items():
        rows = [f"## {group}", "", "| metric | type | labels | what it is |", "|---|---|---|---|"]
        rows += [_row(family) for family in families]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{name}`" for name in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"

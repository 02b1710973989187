"""A configuration file as its keys, each with its line: TOML or YAML, by its extension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .documents import TOML, YAML, DocumentNode, FileUnreadable, read_document, toml_document

__all__ = ["TOML", "YAML", "FileUnreadable", "ConfigEntry", "read_entries", "toml_entries"]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key of the file and what it is set to."""

    key: str
    value: Any
    line: int
    inner_lines: dict[str, int] = field(default_factory=dict)
    """For a table: its keys, joined by dots, and their lines."""


def read_entries(path: Path) -> list[ConfigEntry]:
    """The keys of a file in order. A duplicate key is an error."""
    return entries_of(read_document(path))


def toml_entries(text: str, name: str) -> list[ConfigEntry]:
    return entries_of(toml_document(text, name))


def entries_of(document: DocumentNode) -> list[ConfigEntry]:
    return [
        ConfigEntry(key, node.value, document.key_spots[key].line, dict(_inner_lines(node)))
        for key, node in document.entries.items()
    ]


def _inner_lines(node: DocumentNode, before: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    if depth > 8:
        return
    for key, inner in node.entries.items():
        yield f"{before}{key}", node.key_spots[key].line
        yield from _inner_lines(inner, f"{before}{key}.", depth + 1)

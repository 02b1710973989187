"""Reading a configuration file: TOML or YAML, by its extension; each key with its line.

What the keys mean is not known here. The parsers are loaded only when a file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import InvalidRequest, MissingExtra

TOML, YAML = (".toml",), (".yaml", ".yml")
BYTES_MAX = 1024 * 1024


class FileUnreadable(InvalidRequest):
    """The file cannot be read, or what is in it is no TOML or YAML. The text names the place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of the file and what it is set to."""

    key: str
    value: Any
    line: int
    inner_lines: dict[str, int] = field(default_factory=dict)
    """Of a table: its keys, joined by dots, and their lines."""


def read_entries(path: Path) -> list[Entry]:
    """The keys of a file in order; a key that is there twice is an error."""
    suffix = path.suffix.lower()
    if suffix not in TOML + YAML:
        raise FileUnreadable(
            f"{path}: a configuration file ends in {', '.join(TOML + YAML)}, "
            f"not {path.suffix or 'nothing'!r}"
        )
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise FileUnreadable(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > BYTES_MAX:
        raise FileUnreadable(f"{path}: is over {BYTES_MAX:,} bytes: no configuration file")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileUnreadable(f"{path}:{line}: is not UTF-8") from None
    if suffix in TOML:
        return toml_entries(text, str(path))
    return yaml_entries(text, str(path))


# --- TOML


def toml_entries(text: str, name: str) -> list[Entry]:
    import tomllib

    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileUnreadable(_toml_fault(str(error), text, name)) from None
    lines = key_lines(text)
    return [
        Entry(key, value, lines.get((key,), 1), _inside(key, lines))
        for key, value in parsed.items()
    ]


def _toml_fault(message: str, text: str, name: str) -> str:
    what, _, place = message.partition(" (at ")
    if found := re.fullmatch(r"line (\d+), column (\d+)\)", place):
        return f"{name}:{found[1]}:{found[2]}: {what}"
    lines = text.split("\n")
    return f"{name}:{len(lines)}:{len(lines[-1]) + 1}: {what}"


def _inside(key: str, lines: dict[tuple[str, ...], int]) -> dict[str, int]:
    return {".".join(path[1:]): line for path, line in lines.items() if path[0] == key and path[1:]}


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line on which each key of a TOML document first stands; tables count as keys.

    The document has been parsed without fault: here keys are only told from values. Keys inside an
    inline table have the line of the key before it, so they are left out.
    """
    return _KeyFinder(text).lines


_SKIPPED = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'", re.DOTALL
)
_PLAIN = re.compile(r"""[^"'#\[\]{}\n]+""")


class _KeyFinder:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        while self._skip(_SKIPPED) < len(text):
            line = text.count("\n", 0, self._at) + 1
            if text[self._at] == "[":
                self._at += 2 if text.startswith("[[", self._at) else 1
                table = self._path()
                self._note(table, line)
                self._at = text.find("\n", self._at) % (len(text) + 1)
            else:
                self._note((*table, *self._path()), line)
                self._at += 1  # the equals sign
                self._skip_value()

    def _note(self, path: tuple[str, ...], line: int) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        assert found is not None, "these patterns match nothing, too"
        self._at = found.end()
        return self._at

    def _path(self) -> tuple[str, ...]:
        """A key with its dots; ends before what follows it."""
        names = []
        while True:
            self._skip(_BLANKS)
            names.append(self._name())
            self._skip(_BLANKS)
            if not self._text.startswith(".", self._at):
                return tuple(names)
            self._at += 1

    def _name(self) -> str:
        for pattern in (_BARE, _LITERAL, _BASIC):
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return _unescaped(found[1]) if pattern is _BASIC else found[found.lastindex or 0]
        raise AssertionError("a key is bare or quoted, or the parser would have complained")

    def _skip_value(self) -> None:
        depth = 0
        while self._at < len(self._text):
            found = _STRINGS.match(self._text, self._at) or _PLAIN.match(self._text, self._at)
            if found:
                self._at = found.end()
                continue
            sign = self._text[self._at]
            if sign == "#":
                self._at = self._text.find("\n", self._at) % (len(self._text) + 1)
                continue
            if sign == "\n" and not depth:
                return
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign, 0)
            self._at += 1


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    import tomllib

    unescaped: str = tomllib.loads(f'name = "{text}"')["name"]
    return unescaped


# --- YAML


def yaml_entries(text: str, name: str) -> list[Entry]:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("a YAML configuration file", "server") from None
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise FileUnreadable(f"{name}:{line}:{column}: {error.reason}") from None
    try:
        root = loader.get_single_node()
        if root is None:
            return []
        if not isinstance(root, yaml.MappingNode):
            raise FileUnreadable(f"{name}:1: is not a table of settings: write key: value")
        loader.flatten_mapping(root)
        return list(_yaml_pairs(loader, root, name))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise FileUnreadable(f"{name}{place}: {error.problem or error.context}") from None
    except FileUnreadable:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FileUnreadable(f"{name}: {error}".replace("\n", " ")) from None
    finally:
        loader.dispose()


def _yaml_pairs(loader: Any, root: Any, name: str) -> Iterator[Entry]:
    seen: dict[str, int] = {}
    for key_node, value_node in root.value:
        key, line = str(loader.construct_object(key_node, deep=True)), _line(key_node)
        if key in seen:
            column = key_node.start_mark.column + 1
            raise FileUnreadable(
                f"{name}:{line}:{column}: {key} is there already, on line {seen[key]}"
            )
        seen[key] = line
        value = loader.construct_object(value_node, deep=True)
        yield Entry(key, value, line, dict(_yaml_lines(value_node)))


def _yaml_lines(node: Any, before: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    if node.id != "mapping" or depth > 8:
        return
    for key_node, value_node in node.value:
        path = f"{before}{key_node.value}"
        yield path, _line(key_node)
        yield from _yaml_lines(value_node, f"{path}.", depth + 1)


def _line(node: Any) -> int:
    line: int = node.start_mark.line
    return line + 1

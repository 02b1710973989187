"""TOML and YAML as a tree in which every key and value knows its line and column.

What the keys mean is not known here. The parsers are loaded only when a document is read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidRequest, MissingExtra

TOML, YAML = (".toml",), (".yaml", ".yml")
BYTES_MAX = 1024 * 1024


class FileUnreadable(InvalidRequest):
    """The file cannot be read, or what is in it is no TOML or YAML. The text names the place."""


class Spot(NamedTuple):
    """Lines and columns begin at 1."""

    line: int
    column: int


class Anchor(NamedTuple):
    """From `offset` of a text on, it stands at `spot` in the document."""

    offset: int
    spot: Spot
    is_fixed: bool = False
    """All of it, up to the next anchor, counts as standing at this one spot."""


@dataclass(frozen=True, slots=True)
class TextLayout:
    """Where the characters of a text stand in the document it was written in.

    Escapes, folded lines and indentation make the two differ.
    """

    anchors: tuple[Anchor, ...]

    def spot(self, offset: int) -> Spot:
        index = bisect_right(self.anchors, offset, key=lambda anchor: anchor.offset) - 1
        found = self.anchors[max(index, 0)]
        if found.is_fixed:
            return found.spot
        return Spot(found.spot.line, found.spot.column + offset - found.offset)

    def with_replaced(self, parts: Sequence[tuple[int, int, int]]) -> TextLayout:
        """After `parts` of the text, each (begin, end, new length), were put in otherwise."""
        anchors: list[Anchor] = []
        moved = at = 0
        for begin, end, length in parts:
            anchors += self._between(at, begin, moved)
            anchors.append(Anchor(begin + moved, self.spot(begin), is_fixed=True))
            moved += length - (end - begin)
            at = end
        return TextLayout((*anchors, *self._between(at, None, moved)))

    def _between(self, begin: int, end: int | None, moved: int) -> Iterator[Anchor]:
        before = [anchor for anchor in self.anchors if anchor.offset <= begin]
        yield Anchor(begin + moved, self.spot(begin), before[-1].is_fixed)
        for anchor in self.anchors:
            if begin < anchor.offset and (end is None or anchor.offset < end):
                yield Anchor(anchor.offset + moved, anchor.spot, anchor.is_fixed)


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A value of the document; tables and lists have their parts as nodes, too."""

    value: Any
    spot: Spot
    entries: dict[str, DocumentNode] = field(default_factory=dict)
    """Of a table: by key."""
    key_spots: dict[str, Spot] = field(default_factory=dict)
    items: tuple[DocumentNode, ...] = ()
    """Of a list."""
    layout: TextLayout | None = None
    """Of a text."""

    def text_spot(self, offset: int) -> Spot:
        return self.spot if self.layout is None else self.layout.spot(offset)


def read_document(path: Path, what: str = "a configuration file") -> DocumentNode:
    """The table that a file holds; a key that is there twice is an error."""
    suffix = path.suffix.lower()
    if suffix not in TOML + YAML:
        raise FileUnreadable(
            f"{path}: {what} must end in {', '.join(TOML + YAML)}, not {path.suffix or 'nothing'!r}"
        )
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise FileUnreadable(f"{path}: cannot read the file: {error.strerror}") from None
    if len(data) > BYTES_MAX:
        raise FileUnreadable(
            f"{path}: is larger than {BYTES_MAX:,} bytes: not a {what.partition(' ')[2]}"
        )
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileUnreadable(f"{path}:{line}: is not UTF-8") from None
    if suffix in TOML:
        return toml_document(text, str(path))
    return yaml_document(text, str(path), what)


class _LineIndex:
    """Offsets of a text as lines and columns."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def spot(self, offset: int) -> Spot:
        line = bisect_right(self._starts, offset)
        return Spot(line, offset - self._starts[line - 1] + 1)


# --- TOML


def toml_document(text: str, name: str) -> DocumentNode:
    import tomllib

    try:
        parsed = tomllib.loads(text)
        return _Finder(text).node(parsed)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileUnreadable(_toml_fault(str(error), text, name)) from None


def _toml_fault(message: str, text: str, name: str) -> str:
    what, _, place = message.partition(" (at ")
    if found := re.fullmatch(r"line (\d+), column (\d+)\)", place):
        line = text.split("\n")[int(found[1]) - 1]
        if what == r"Illegal character '\n'":
            what = "the string is not closed on its line"
        elif what == "Invalid value":
            what = "invalid value; put text in quotes"
        elif what == "Cannot overwrite a value" and "=" in line[: int(found[2])]:
            key = line.partition("=")[0].strip()
            return f"{name}:{found[1]}:{len(line) - len(line.lstrip()) + 1}: {key} is defined twice"
        return f"{name}:{found[1]}:{found[2]}: {what}"
    lines = text.split("\n")
    return f"{name}:{len(lines)}:{len(lines[-1]) + 1}: {what}"


_SKIPPED = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'", re.DOTALL
)
_PLAIN = re.compile(r"""[^,#\[\]{}\n]+""")
_ESCAPE = re.compile(r"\\(?:[ \t]*\n[ \t\n]*|u.{4}|U.{8}|x.{2}|.)", re.DOTALL)

_Path = tuple[str | int, ...]


class _Finder:
    """Where keys and values of a TOML document stand.

    It has been parsed without fault: here keys are only told from values.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._lines = _LineIndex(text)
        self._keys: dict[_Path, Spot] = {}
        self._values: dict[_Path, tuple[int, int]] = {}
        self._lengths: dict[_Path, int] = {}
        """Of arrays of tables."""
        table: _Path = ()
        while self._skip(_SKIPPED) < len(text):
            if text[self._at] == "[":
                is_of_many = text.startswith("[[", self._at)
                self._at += 2 if is_of_many else 1
                table = self._header(is_of_many)
                self._at = text.find("\n", self._at) % (len(text) + 1)
            else:
                self._pair(table)

    def node(self, value: Any, path: _Path = ()) -> DocumentNode:
        begin, end = self._values.get(path, (-1, -1))
        spot = self._keys.get(path, Spot(1, 1)) if begin < 0 else self._lines.spot(begin)
        if isinstance(value, dict):
            return DocumentNode(
                value,
                spot,
                {key: self.node(inner, (*path, key)) for key, inner in value.items()},
                {key: self._keys[(*path, key)] for key in value},
            )
        if isinstance(value, list):
            items = (self.node(inner, (*path, index)) for index, inner in enumerate(value))
            return DocumentNode(value, spot, items=tuple(items))
        layout = self._layout(begin, end) if isinstance(value, str) else None
        return DocumentNode(value, spot, layout=layout)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        assert found is not None, "these patterns match nothing, too"
        self._at = found.end()
        return self._at

    def _header(self, is_of_many: bool) -> _Path:
        names = self._names()
        path: _Path = ()
        for number, (name, begin) in enumerate(names):
            path = (*path, name)
            self._keys.setdefault(path, self._lines.spot(begin))
            if is_of_many and number == len(names) - 1:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
                self._keys.setdefault(path, self._lines.spot(begin))
        return path

    def _pair(self, table: _Path) -> None:
        path = table
        for name, begin in self._names():
            path = (*path, name)
            self._keys.setdefault(path, self._lines.spot(begin))
        self._at += 1  # the equals sign
        self._skip(_BLANKS)
        self._value(path)

    def _names(self) -> list[tuple[str, int]]:
        """A key with its dots, each part with where it begins; ends before what follows it."""
        names = []
        while True:
            begin = self._skip(_BLANKS)
            names.append((self._name(), begin))
            self._skip(_BLANKS)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _name(self) -> str:
        for pattern in (_BARE, _LITERAL, _BASIC):
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return _unescaped(found[1]) if pattern is _BASIC else found[found.lastindex or 0]
        raise AssertionError("a key is bare or quoted, or the parser would have complained")

    def _value(self, path: _Path) -> None:
        begin = self._at
        sign = self._text[begin]
        if sign == "[":
            self._at += 1
            index = 0
            while self._text[self._skip(_SKIPPED)] != "]":
                self._value((*path, index))
                index += 1
                self._skip(_SKIPPED)
                self._at += self._text[self._at] == ","
            self._at += 1
        elif sign == "{":
            self._at += 1
            while self._text[self._skip(_SKIPPED)] != "}":
                self._pair(path)
                self._skip(_SKIPPED)
                self._at += self._text[self._at] == ","
            self._at += 1
        else:
            found = _STRING.match(self._text, begin) or _PLAIN.match(self._text, begin)
            assert found is not None, "the parser found a value here"
            self._at = found.end()
        self._values[path] = (begin, self._at)

    def _layout(self, begin: int, end: int) -> TextLayout:
        raw = self._text[begin:end]
        quotes = 3 if raw.startswith(('"""', "'''")) else 1
        at = quotes + (quotes == 3 and raw.startswith("\n", 3))
        anchors = [Anchor(0, self._lines.spot(begin + at))]
        has_escapes = raw[0] == '"'
        offset = 0
        while at < len(raw) - quotes:
            escape = _ESCAPE.match(raw, at) if has_escapes else None
            is_line = raw[at] == "\n"
            if escape:
                offset += not re.fullmatch(r"\\[ \t]*\n\s*", escape[0])
                at = escape.end()
            else:
                offset, at = offset + 1, at + 1
            if escape or is_line:
                anchors.append(Anchor(offset, self._lines.spot(begin + at)))
        return TextLayout(tuple(anchors))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    import tomllib

    unescaped: str = tomllib.loads(f'name = "{text}"')["name"]
    return unescaped


# --- YAML


def yaml_document(text: str, name: str, what: str = "a configuration file") -> DocumentNode:
    try:
        import yaml
    except ImportError:
        raise MissingExtra(f"a YAML {what.partition(' ')[2]}", "server") from None
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        spot = _LineIndex(text).spot(error.position)
        raise FileUnreadable(f"{name}:{spot.line}:{spot.column}: {error.reason}") from None
    try:
        root = loader.get_single_node()
        if root is None:
            return DocumentNode({}, Spot(1, 1))
        if not isinstance(root, yaml.MappingNode):
            raise FileUnreadable(f"{name}:1: not a table of settings; write key: value")
        _check_repeats(root, name)
        return _YamlTree(loader, text).node(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = error.problem or error.context or "invalid YAML"
        begin = error.context_mark
        if error.problem and begin and mark and begin.line != mark.line:
            what += f", {error.context} that starts on line {begin.line + 1}"
        raise FileUnreadable(f"{name}{place}: {what}") from None
    except FileUnreadable:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FileUnreadable(f"{name}: {error}".replace("\n", " ")) from None
    finally:
        loader.dispose()


def _check_repeats(root: Any, name: str) -> None:
    """Before the loader merges other tables into some (`<<`), whose keys may be there again."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        if node.id == "scalar":
            continue
        inner = [value for _, value in node.value] if node.id == "mapping" else node.value
        if node.id == "mapping":
            first: dict[str, int] = {}
            for key_node, _ in node.value:
                line, column = _spot(key_node)
                key = str(key_node.value)
                if key in first and key_node.id == "scalar":
                    raise FileUnreadable(
                        f"{name}:{line}:{column}: {key} is defined twice, first on line "
                        f"{first[key]}"
                    )
                first[key] = line
        for one in reversed(inner):
            if id(one) not in seen:
                seen.add(id(one))
                waiting.append(one)


class _YamlTree:
    def __init__(self, loader: Any, text: str) -> None:
        self._loader, self._text = loader, text
        self._lines = text.split("\n")
        self._made: dict[int, DocumentNode] = {}
        """What an anchor names is made once, however often it is referred to."""

    def node(self, found: Any) -> DocumentNode:
        if (made := self._made.get(id(found))) is None:
            # First of all, since this notices a list that holds itself.
            value = self._loader.construct_object(found, deep=True)
            made = self._made[id(found)] = self._node(found, value)
        return made

    def _node(self, found: Any, value: Any) -> DocumentNode:
        spot = _spot(found)
        if found.id == "mapping":
            entries: dict[str, DocumentNode] = {}
            key_spots: dict[str, Spot] = {}
            for key_node, value_node in found.value:
                key = str(key_node.value)
                entries[key], key_spots[key] = self.node(value_node), _spot(key_node)
            return DocumentNode(value, spot, entries, key_spots)
        if found.id == "sequence":
            return DocumentNode(value, spot, items=tuple(self.node(item) for item in found.value))
        return DocumentNode(
            value, spot, layout=self._layout(found, value) if isinstance(value, str) else None
        )

    def _layout(self, found: Any, value: str) -> TextLayout:
        spot = _spot(found)
        raw = self._text[found.start_mark.index : found.end_mark.index]
        if found.style == "|":
            if anchors := self._lines_of_block(spot.line + 1, value):
                return TextLayout(tuple(anchors))
        elif found.style is None and raw == value:
            return TextLayout((Anchor(0, spot),))
        elif found.style in ("'", '"') and raw[1:-1] == value:
            return TextLayout((Anchor(0, Spot(spot.line, spot.column + 1)),))
        return TextLayout((Anchor(0, spot, is_fixed=True),))

    def _lines_of_block(self, first: int, value: str) -> list[Anchor]:
        anchors, offset = [], 0
        for line, text in enumerate(value.rstrip("\n").split("\n"), first):
            raw = self._lines[line - 1]
            indent = len(raw) - len(text) if text else 0
            if not raw.endswith(text) or raw[:indent].strip():
                return []
            anchors.append(Anchor(offset, Spot(line, indent + 1)))
            offset += len(text) + 1
        return anchors


def _spot(node: Any) -> Spot:
    return Spot(node.start_mark.line + 1, node.start_mark.column + 1)

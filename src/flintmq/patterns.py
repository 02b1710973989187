"""Topic names and patterns: words between dots, `*` for one word, `>` for the rest.

Protocols that allow any text as a name (HermesMQ, BlipMQ) have theirs escaped: what no name may
hold becomes `%XX`, byte by byte of its UTF-8, and the empty name is `%`. Such a name is one like
any other, so a topic of theirs can be looked at by everybody under its escaped name.

Pure. `PatternIndex` finds every pattern that matches a name by walking its words once, however
many patterns there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Generic, TypeVar

from .errors import InvalidRequest

T = TypeVar("T")

NAME_BYTES_MAX = 65_535
_FORBIDDEN = frozenset("*>%/")
_ESCAPED = re.compile(r"%[0-9A-F]{2}")
EMPTY = "%"
"""How the empty name is escaped."""


def check_name(name: str, what: str = "topic") -> str:
    """`name` if a topic, group or reader may be called so; an error that says why not."""
    if not isinstance(name, str):
        raise InvalidRequest(f"a {what} name must be a str, not {type(name).__name__}")
    if not name:
        raise InvalidRequest(f"a {what} name must have at least one character")
    if not name.isascii() or not name.isprintable() or _FORBIDDEN.intersection(name):
        _check_characters(name, what)
    if len(name) > NAME_BYTES_MAX // 4 and len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a {what} name can have at most {NAME_BYTES_MAX:,} bytes of UTF-8")
    return name


def escape_name(name: str) -> str:
    """Any text as a name that `check_name` lets pass, if it is not too long."""
    if name.isascii() and name.isprintable() and not _FORBIDDEN.intersection(name):
        return name or EMPTY
    return name.translate(_escapes())


@cache
def _escapes() -> dict[int, str]:
    """What is written instead of each character that a name may not have."""
    forbidden = [*range(0x20), *range(0x7F, 0xA0), *map(ord, _FORBIDDEN), *range(0xD800, 0xE000)]
    return {
        code: "".join(f"%{byte:02X}" for byte in chr(code).encode("utf-8", "surrogatepass"))
        for code in forbidden
    }


def unescape_name(name: str) -> str:
    """The text that `escape_name` made this name of."""
    if "%" not in name:
        return name
    if name == EMPTY:
        return ""
    data = b"".join(
        bytes.fromhex(part[1:]) if _ESCAPED.fullmatch(part) else part.encode()
        for part in re.split(r"(%[0-9A-F]{2})", name)
    )
    return data.decode("utf-8", "replace")


def _is_forbidden(character: str) -> bool:
    return ord(character) in _escapes()


def _check_characters(name: str, what: str) -> None:
    if name == EMPTY:
        return
    for character in _ESCAPED.sub("", name):
        if _is_forbidden(character):
            raise InvalidRequest(
                f"{what} name {name!r} contains {character!r}; names are UTF-8 without "
                "control characters, '*', '>', '%' and '/' (except %XX, which stands for "
                "another byte)"
            )


def check_pattern(pattern: str) -> str:
    """`pattern` if it can match names; `*` and `>` stand alone between dots, `>` comes last."""
    if not isinstance(pattern, str) or not pattern:
        raise InvalidRequest(f"a topic pattern must be a non-empty str, not {pattern!r}")
    words = pattern.split(".")
    for word in words:
        if word not in ("*", ">") and word:
            if "*" in word or ">" in word:
                raise InvalidRequest(
                    f"pattern {pattern!r}: '*' and '>' match whole words, not parts of a word"
                )
            check_name(word)
    if ">" in words[:-1]:
        raise InvalidRequest(f"pattern {pattern!r}: '>' matches the rest, so it must come last")
    return pattern


def is_literal(pattern: str) -> bool:
    """Whether the pattern is one name and nothing else."""
    return "*" not in pattern and ">" not in pattern


def matches(pattern: str, name: str) -> bool:
    """Whether one pattern matches one name. To match many, use PatternIndex."""
    return covers(pattern, name)  # a name is a pattern that matches itself alone


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every name that `narrow` could match."""
    ours, theirs = wide.split("."), narrow.split(".")
    if ours[-1] == ">":
        ours.pop()
        if len(theirs) <= len(ours):
            return False
        theirs = theirs[: len(ours)]
    return len(ours) == len(theirs) and all(
        their != ">" and our in ("*", their) for our, their in zip(ours, theirs, strict=True)
    )


class PatternIndex(Generic[T]):
    """Which items listen to a name. A tree of words; a lookup follows at most two ways per word."""

    def __init__(self) -> None:
        self._root: _PatternNode[T] = _PatternNode()

    def add(self, pattern: str, item: T) -> None:
        node = self._root
        for word in pattern.split("."):
            node = node.children.setdefault(word, _PatternNode())
        node.items[item] = None

    def remove(self, pattern: str, item: T) -> None:
        path = [self._root]
        words = pattern.split(".")
        for word in words:
            path.append(path[-1].children[word])
        del path[-1].items[item]
        for parent, word, node in zip(path[-2::-1], words[::-1], path[:0:-1], strict=True):
            if node.items or node.children:
                break
            del parent.children[word]

    def find(self, name: str) -> list[T]:
        """Every item whose pattern matches `name`."""
        return list(self._find(name.split(".")))

    def _find(self, words: list[str]) -> Iterator[T]:
        nodes = [self._root]
        for word in words:
            below: list[_PatternNode[T]] = []
            for node in nodes:
                children = node.children
                if (rest := children.get(">")) is not None:
                    yield from rest.items
                if (exact := children.get(word)) is not None:
                    below.append(exact)
                if (any_word := children.get("*")) is not None:
                    below.append(any_word)
            if not below:
                return
            nodes = below
        for node in nodes:
            yield from node.items


class _PatternNode(Generic[T]):
    __slots__ = ("children", "items")

    def __init__(self) -> None:
        self.children: dict[str, _PatternNode[T]] = {}
        self.items: dict[T, None] = {}  # in the order they came; thousands may go at once

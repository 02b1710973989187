"""Cuts a stream of bytes into JSON texts: lines (NDJSON), or the elements of one array. Pure.

Feed it any amount; it keeps the remainder, which is bounded. What is inside of a text is for a
parser to say.
"""

from __future__ import annotations

import re
from typing import Protocol

from ...errors import InvalidRequest, MessageTooLarge


class JsonCutter(Protocol):
    def feed(self, data: bytes) -> list[bytes]:
        """The texts that are complete now."""
        ...

    def end(self) -> list[bytes]:
        """Nothing more comes: the last text. Raises InvalidRequest where it is not complete."""
        ...


def _too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge("a message of this request", size, limit, "http_max_body_bytes")


class Lines:
    """NDJSON: a text in each line. Empty lines are passed over."""

    def __init__(self, text_bytes_max: int) -> None:
        self._rest = bytearray()
        self._limit = text_bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        self._rest += data
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in data else [bytes(self._rest)]
        if whole:
            self._rest = bytearray(rest)
        for one in (*whole, rest):
            if len(one) > self._limit:
                raise _too_large(len(one), self._limit)
        return [one for one in whole if one.strip()]

    def end(self) -> list[bytes]:
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() else []


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)
"""A whole string, or a character that means something outside of one; a quote alone begins a string
whose end has not come yet. (Possessive: a long string is gone over once.)"""


class Elements:
    """The elements of one array.

    depth 0   before the array, or behind it
    depth 1   between the elements, or in one that is a number, a word or a string
    deeper    inside of an element
    """

    def __init__(self, text_bytes_max: int) -> None:
        self._rest = bytearray()
        self._at = 0  # what was looked at
        self._depth = 0
        self._limit = text_bytes_max
        self._has_ended = self._has_elements = False

    def feed(self, data: bytes) -> list[bytes]:
        self._rest += data
        rest = bytes(self._rest)
        found: list[bytes] = []
        begin, at = 0, self._at
        for token in _TOKEN.finditer(rest, at):
            mark = token.group()
            if mark == b'"':
                at = token.start()
                break
            at = token.end()
            if self._has_ended:
                break
            if self._depth == 0:
                if mark != b"[" or rest[: token.start()].strip():
                    raise InvalidRequest("invalid body: it is not a JSON array")
                self._depth, begin = 1, at
            elif self._depth == 1 and mark in (b",", b"]"):
                self._add(rest[begin : token.start()], found, is_last=mark == b"]")
                begin = at
                self._has_ended = mark == b"]"
            elif mark in (b"[", b"{"):
                self._depth += 1
            elif mark in (b"]", b"}"):
                self._depth -= 1
        else:
            at = len(rest)
        if self._has_ended and rest[begin:].strip():
            raise InvalidRequest("invalid body: something follows the JSON array")
        if len(rest) - begin > self._limit:
            raise _too_large(len(rest) - begin, self._limit)
        self._rest, self._at = bytearray(rest[begin:]), at - begin
        return found

    def _add(self, text: bytes, found: list[bytes], *, is_last: bool) -> None:
        if len(text) > self._limit:
            raise _too_large(len(text), self._limit)
        if text.strip():
            found.append(text)
        elif not is_last or self._has_elements:
            raise InvalidRequest("invalid body: an element of the JSON array is empty")
        self._has_elements = True

    def end(self) -> list[bytes]:
        if not self._has_ended:
            raise InvalidRequest("invalid body: the JSON array has no end")
        return []

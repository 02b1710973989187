"""Whether a Protobuf message reads what another version of it wrote: numbers keep their meaning.

Reads `.proto` files of one file: messages (nested, too), enums, oneof, map, and both syntaxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import InvalidRequest

ALIKE = (
    {"int32", "uint32", "int64", "uint64", "bool"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
    {"string", "bytes"},
)
"""Types of one form on the wire."""
_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[\w.]+|[^\s\w]", re.DOTALL
)
_LABELS = ("optional", "required", "repeated")


@dataclass(slots=True)
class ProtoField:
    name: str
    type: str
    label: str = ""


@dataclass(slots=True)
class ProtoFile:
    """Messages and enums by their full names."""

    messages: dict[str, dict[int, ProtoField]] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)


def proto_problems(reader: str, writer: str) -> list[str]:
    """Why `reader` misreads what `writer` wrote."""
    return list(_problems(parsed_proto(reader), parsed_proto(writer)))


def _problems(ours: ProtoFile, theirs: ProtoFile) -> Iterator[str]:
    for name, fields in theirs.messages.items():
        if name not in ours.messages:
            yield f"message {name} is gone"
            continue
        for number, written in fields.items():
            read = ours.messages[name].get(number)
            if read is None:
                continue
            place = f"field {number} of {name} ({written.name})"
            if not _is_alike(read.type, written.type, ours, theirs):
                yield f"{place} was {written.type}, and is {read.type}"
            elif (read.label == "repeated") != (written.label == "repeated"):
                yield f"{place} was {written.label or 'single'}, and is {read.label or 'single'}"
    for name, fields in ours.messages.items():
        for number, read in fields.items():
            before = theirs.messages.get(name, {}).get(number)
            if read.label == "required" and (before is None or before.label != "required"):
                yield f"field {number} of {name} ({read.name}) is required, and was not"


def _is_alike(read: str, written: str, ours: ProtoFile, theirs: ProtoFile) -> bool:
    read = "int32" if _is_enum(read, ours) else read
    written = "int32" if _is_enum(written, theirs) else written
    return read == written or any({read, written} <= kinds for kinds in ALIKE)


def _is_enum(kind: str, file: ProtoFile) -> bool:
    return any(name == kind or name.endswith(f".{kind}") for name in file.enums)


def parsed_proto(text: str) -> ProtoFile:
    """Raises InvalidRequest for what is not a `.proto` file."""
    tokens = [one for one in _TOKEN.findall(text) if not one.startswith(("//", "/*"))]
    file = ProtoFile()
    _ProtoReader(tokens, file).all()
    if not file.messages:
        raise InvalidRequest("not a Protobuf schema: it has no message")
    return file


class _ProtoReader:
    def __init__(self, tokens: list[str], file: ProtoFile) -> None:
        self._tokens, self._file, self._at = tokens, file, 0

    def all(self) -> None:
        while self._at < len(self._tokens):
            self._one("")

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise InvalidRequest("not a Protobuf schema: it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, until: str = ";") -> None:
        depth = 0
        while (token := self._next()) != until or depth:
            depth += (token in "{[(") - (token in "}])")

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise InvalidRequest(f"not a Protobuf schema: {token!r} expected, not {found!r}")

    def _one(self, within: str) -> None:
        token = self._next()
        if token == "message":
            name = f"{within}{self._next()}"
            self._file.messages[name] = {}
            self._expect("{")
            self._body(name)
        elif token == "enum":
            self._enum(f"{within}{self._next()}")
        elif token in ("service", "extend"):
            while self._next() != "{":
                pass
            self._skip("}")
        elif token != ";":
            self._skip()

    def _body(self, message: str) -> None:
        while (token := self._next()) != "}":
            if token in ("message", "enum", "extend"):
                self._at -= 1
                self._one(f"{message}.")
            elif token == "oneof":
                self._next()
                self._expect("{")
                self._body(message)
            elif token in ("option", "reserved", "extensions"):
                self._skip()
            elif token != ";":
                self._field(message, token)

    def _field(self, message: str, token: str) -> None:
        label = token if token in _LABELS else ""
        kind = self._next() if label else token
        if kind == "map":
            parts = [kind]
            while parts[-1] != ">":
                parts.append(self._next())
            kind, label = "".join(parts), "repeated"
        name = self._next()
        self._expect("=")
        number = self._next()
        if not number.isdecimal():
            raise InvalidRequest(f"not a Protobuf schema: {name} of {message} has no number")
        if int(number) in self._file.messages[message]:
            raise InvalidRequest(f"number {number} of {message} is used twice")
        self._file.messages[message][int(number)] = ProtoField(name, kind, label)
        self._skip()

    def _enum(self, name: str) -> None:
        self._file.enums[name] = {}
        self._expect("{")
        while (token := self._next()) != "}":
            if token in ("option", "reserved"):
                self._skip()
            elif token != ";":
                self._expect("=")
                sign = self._next()
                number = int(f"-{self._next()}") if sign == "-" else int(sign, 0)
                self._file.enums[name][number] = token
                self._skip()

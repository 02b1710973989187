"""`sub -f`: messages by a format string. Pure.

    %t topic   %p partition   %o offset   %k key   %v value   %h headers   %s size of the value
    %T milliseconds since 1970   %d date and time   %P priority   %c content type   %% percent

`\\n`, `\\t`, `\\r`, `\\0` and `\\\\` have their usual meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest
from ..rows import Message
from .values import as_bytes, published

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

_TOKENS: dict[str, Callable[[Message], Any]] = {
    "t": lambda message: message.topic,
    "p": lambda message: message.partition,
    "o": lambda message: "" if message.offset is None else message.offset,
    "k": lambda message: "" if message.key is None else message.key,
    "v": published,
    "h": lambda message: ",".join(
        f"{name}={value if isinstance(value, str) else as_bytes(value).decode(errors='replace')}"
        for name, value in message.headers.items()
    ),
    "s": lambda message: len(message.value),
    "T": lambda message: round(message.timestamp * 1000),
    "d": lambda message: message.time.isoformat(timespec="milliseconds"),
    "P": lambda message: message.priority,
    "c": lambda message: message.content_type or "",
    "%": lambda message: "%",
}


def formatter(
    text: str, value_of: Callable[[Message], bytes] = published
) -> Callable[[Message], bytes]:
    """The function that formats a message by `text`. An error names what is not supported."""
    tokens = {**_TOKENS, "v": value_of}
    parts: list[bytes | Callable[[Message], Any]] = []
    plain = ""
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            name = next(letters, "")
            if name not in _ESCAPES:
                raise InvalidRequest(f"{text!r}: there is \\n, \\t, \\r, \\0 and \\\\, no \\{name}")
            plain += _ESCAPES[name]
        elif letter == "%":
            name = next(letters, "")
            if name not in tokens:
                known = ", ".join(f"%{token}" for token in tokens)
                raise InvalidRequest(f"{text!r}: there is {known}; no %{name}")
            if plain:
                parts.append(plain.encode())
                plain = ""
            parts.append(tokens[name])
        else:
            plain += letter
    if plain:
        parts.append(plain.encode())

    def write(message: Message) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else as_bytes(part(message)) for part in parts
        )

    return write

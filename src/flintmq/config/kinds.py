"""Kinds of configuration values: how each is read from text and from a file, and shown. Pure.

Text comes from flags and the environment; values are what TOML or YAML parsed. A kind says what it
allows and nothing more: the caller knows where a value came from, and adds the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..errors import InvalidRequest
from ..fsync_policy import FsyncPolicy
from ..model import OPTION_NAMES, TopicOptions, changed_options

OFF = "off"
LEVELS = ("debug", "info", "warning", "error")

Address = tuple[str, int]


class UnfitValue(Exception):
    """A value that is not allowed. The text says what is allowed, and does not repeat the value."""


class Kind:
    """One kind of value. `None` means the setting is off."""

    metavar: ClassVar[str] = "VALUE"

    @property
    def allowed(self) -> str:
        """What is allowed, in words, to follow "must be"."""
        raise NotImplementedError

    def from_text(self, text: str) -> Any:
        raise NotImplementedError

    def from_value(self, value: Any) -> Any:
        """A value from TOML or YAML. Text is read as on the command line."""
        if isinstance(value, str):
            return self.from_text(value)
        raise UnfitValue(self.allowed)

    def to_plain(self, value: Any) -> Any:
        """A value that JSON, TOML and YAML can write, and `from_value` reads back."""
        return value

    def to_text(self, value: Any) -> str:
        """Text that `from_text` reads back."""
        return str(self.to_plain(value))


@dataclass(frozen=True, slots=True)
class Boolean(Kind):
    metavar: ClassVar[str] = "BOOL"

    @property
    def allowed(self) -> str:
        return "true or false"

    def from_text(self, text: str) -> bool:
        word = text.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise UnfitValue(self.allowed)

    def from_value(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        return bool(Kind.from_value(self, value))

    def to_text(self, value: Any) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A number within bounds, inclusive. `unit` says what it counts."""

    least: float | None = None
    most: float | None = None
    unit: ClassVar[str] = ""
    is_whole: ClassVar[bool] = True
    what: ClassVar[str] = "a whole number"
    suffixes: ClassVar[Mapping[str, float]] = {}
    metavar: ClassVar[str] = "N"

    @property
    def allowed(self) -> str:
        match self.least, self.most:
            case None, None:
                return self.what
            case least, None:
                return f"{self.what} of at least {self.show(least)}"
            case None, most:
                return f"{self.what} of at most {self.show(most)}"
        return f"{self.what} from {self.show(self.least)} to {self.show(self.most)}"

    @property
    def in_short(self) -> str:
        """Unit and bounds, for narrow places."""
        return self.allowed.replace(self.what, self.unit or "number", 1)

    def show(self, number: Any) -> str:
        """For people."""
        return f"{number:,}"

    def from_text(self, text: str) -> float:
        found = _NUMBER.fullmatch(text.strip())
        if found is None:
            raise UnfitValue(self.allowed)
        digits, suffix = found["digits"], found["suffix"]
        if suffix and suffix not in self.suffixes:
            raise UnfitValue(self.allowed)
        times = self.suffixes.get(suffix, 1)
        number = float(digits) * times
        if self.is_whole:
            if not number.is_integer():
                raise UnfitValue(self.allowed)
            number = int(digits) * int(times) if digits.lstrip("+-").isdecimal() else int(number)
        return self._within(number)

    def from_value(self, value: Any) -> float:
        if isinstance(value, str):
            return self.from_text(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnfitValue(self.allowed)
        if self.is_whole and not isinstance(value, int):
            raise UnfitValue(self.allowed)
        within = self._within(value)
        return within if self.is_whole else float(within)

    def _within(self, number: float) -> float:
        # Written so that "not a number" is outside too.
        above = self.least is None or number >= self.least
        below = number <= (_BEYOND if self.most is None else self.most)
        if not (above and below):
            raise UnfitValue(self.allowed)
        return number

    def to_text(self, value: Any) -> str:
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)


_NUMBER = re.compile(r"(?P<digits>[+-]?[0-9]+(?:\.[0-9]+)?) ?(?P<suffix>[A-Za-z]*)", re.ASCII)
_BEYOND = 2**62
"""A larger number is a mistake."""


class Count(Number):
    """How many of something."""


class Rate(Number):
    """A rate per second."""

    is_whole: ClassVar[bool] = False
    what: ClassVar[str] = "a number"


class Share(Number):
    """A part of a whole."""

    is_whole: ClassVar[bool] = False
    what: ClassVar[str] = "a share"


class Bytes(Number):
    unit: ClassVar[str] = "bytes"
    what: ClassVar[str] = "a number of bytes (also as 64KiB, 16MiB, 1GiB)"
    metavar: ClassVar[str] = "BYTES"
    suffixes: ClassVar[Mapping[str, float]] = {
        "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
        "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    }  # fmt: skip

    def show(self, number: Any) -> str:
        for name in ("TiB", "GiB", "MiB", "KiB"):
            size = int(self.suffixes[name])
            if number >= size and number % size == 0:
                return f"{int(number) // size}{name}"
        return f"{number:,}"

    def to_text(self, value: Any) -> str:
        return self.show(value).replace(",", "")


class Seconds(Number):
    unit: ClassVar[str] = "seconds"
    what: ClassVar[str] = "a number of seconds (also as 500ms, 30s, 5m, 2h, 1d)"
    is_whole: ClassVar[bool] = False
    metavar: ClassVar[str] = "SECONDS"
    suffixes: ClassVar[Mapping[str, float]] = {
        "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800,
    }  # fmt: skip

    def show(self, number: Any) -> str:
        return f"{int(number):,}" if float(number).is_integer() else f"{number:g}"


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    choices: Sequence[str]
    metavar: ClassVar[str] = "WORD"

    @property
    def allowed(self) -> str:
        return _or(self.choices)

    def from_text(self, text: str) -> str:
        word = text.strip().lower()
        if word not in self.choices:
            raise UnfitValue(self.allowed)
        return word

    def from_value(self, value: Any) -> str:
        # YAML reads the bare words on and off as booleans.
        if isinstance(value, bool):
            value = "on" if value else OFF
        return str(Kind.from_value(self, value))


@dataclass(frozen=True, slots=True)
class HostPort(Kind):
    port: int
    """The default port, for an address without one."""
    can_be_off: bool = False
    metavar: ClassVar[str] = "HOST:PORT"

    @property
    def allowed(self) -> str:
        return "an address HOST:PORT (or HOST, or :PORT)" + (", or off" if self.can_be_off else "")

    def from_text(self, text: str) -> Address | None:
        text = text.strip()
        if self.can_be_off and text.lower() in (OFF, ""):
            return None
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")) or text.endswith("]"):
            host, port = text, str(self.port)  # a name, or an IPv6 address on its own
        host = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
        is_host = not any(c.isspace() or c in "/@[]" for c in host) and _can_be_host(host)
        if not (text and is_port and is_host):
            raise UnfitValue(self.allowed)
        return host or "127.0.0.1", int(port)

    def from_value(self, value: Any) -> Address | None:
        if self.can_be_off and (value is None or value is False):
            return None
        if isinstance(value, str):
            return self.from_text(value)
        raise UnfitValue(self.allowed)

    def to_plain(self, value: Any) -> Any:
        return OFF if value is None else shown_address(value)


@dataclass(frozen=True, slots=True)
class HostNames(Kind):
    """Host names: a list in a file, separated by commas as text."""

    metavar: ClassVar[str] = "NAME,..."

    @property
    def allowed(self) -> str:
        return "host names, without ports"

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.from_value([name for part in text.split(",") if (name := part.strip())])

    def from_value(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.from_text(value)
        if not isinstance(value, list):
            raise UnfitValue(self.allowed)
        if not all(isinstance(name, str) and _HOST_NAME.fullmatch(name) for name in value):
            raise UnfitValue(self.allowed)
        return tuple(name.lower() for name in value)

    def to_plain(self, value: Any) -> Any:
        return list(value)

    def to_text(self, value: Any) -> str:
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Words(Kind):
    """Any words: a list in a file, separated by commas as text."""

    metavar: ClassVar[str] = "WORD,..."

    @property
    def allowed(self) -> str:
        return "words, none of them empty"

    def from_text(self, text: str) -> tuple[str, ...]:
        return tuple(word for part in text.split(",") if (word := part.strip()))

    def from_value(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.from_text(value)
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise UnfitValue(self.allowed)
        return tuple(value)

    def to_plain(self, value: Any) -> Any:
        return list(value)

    def to_text(self, value: Any) -> str:
        return ",".join(value)


_HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,63}")


@dataclass(frozen=True, slots=True)
class FilePath(Kind):
    can_be_off: bool = False
    metavar: ClassVar[str] = "PATH"

    @property
    def allowed(self) -> str:
        return "a path" + (", or off" if self.can_be_off else "")

    def from_text(self, text: str) -> Path | None:
        if self.can_be_off and text.strip().lower() in (OFF, ""):
            return None
        if not text.strip() or "\0" in text:
            raise UnfitValue(self.allowed)
        return Path(text)

    def from_value(self, value: Any) -> Path | None:
        if self.can_be_off and (value is None or value is False):
            return None
        if isinstance(value, str):
            return self.from_text(value)
        raise UnfitValue(self.allowed)

    def to_plain(self, value: Any) -> Any:
        return OFF if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Fsync(Kind):
    metavar: ClassVar[str] = "POLICY"

    @property
    def allowed(self) -> str:
        return "always, every_n:<records>, interval:<milliseconds> or never"

    def from_text(self, text: str) -> FsyncPolicy:
        try:
            return FsyncPolicy.parse(text.strip())
        except InvalidRequest:
            raise UnfitValue(self.allowed) from None

    def to_plain(self, value: Any) -> Any:
        return str(value)


class TableKind(Kind):
    """Names with values: a table in a file, `name=value,name=value` as text."""

    metavar: ClassVar[str] = "NAME=VALUE,..."

    def entry(self, name: str, value: Any) -> Any:
        """One value, checked. Unfit says what is allowed for that name."""
        raise NotImplementedError

    def known_names(self) -> Sequence[str]:
        """The known names; empty if any name is allowed."""
        return ()

    def from_text(self, text: str) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals:
                raise UnfitValue(f"NAME=VALUE pairs separated by commas; {part!r} is not one")
            pairs[name.strip()] = value.strip()
        return self.from_value(pairs)

    def from_value(self, value: Any) -> dict[str, Any]:
        if isinstance(value, str):
            return self.from_text(value)
        if not isinstance(value, Mapping):
            raise UnfitValue(self.allowed)
        return {name: self._named(name, one) for name, one in flat(value).items()}

    def _named(self, name: str, value: Any) -> Any:
        if (known := self.known_names()) and name not in known:
            raise UnfitValue(self.allowed)
        try:
            return self.entry(name, value)
        except UnfitValue as unfit:
            raise UnfitValue(f"valid: {name} must be {unfit}") from None

    def to_text(self, value: Any) -> str:
        plain = self.to_plain(value).items()
        return ",".join(f"{name}={self.word(name, one)}" for name, one in plain)

    def word(self, name: str, value: Any) -> str:
        """A plain value as text."""
        return str(value)


def flat(table: Mapping[Any, Any], before: str = "") -> dict[str, Any]:
    """A nested table flattened, names joined by dots: TOML nests what is written `a.b = 1`."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{path}.")
        else:
            found[path] = value
    return found


@dataclass(frozen=True, slots=True)
class LogLevels(TableKind):
    metavar: ClassVar[str] = "MODULE=LEVEL,..."

    @property
    def allowed(self) -> str:
        return f"a table of module = level, each level {_or(LEVELS)}"

    def entry(self, name: str, value: Any) -> str:
        if value not in LEVELS:
            raise UnfitValue(_or(LEVELS))
        return str(value)


@dataclass(frozen=True, slots=True)
class TopicDefaults(TableKind):
    """Options of topics, as `create_topic` takes them; sizes and times can have a unit."""

    metavar: ClassVar[str] = "OPTION=VALUE,..."

    @property
    def allowed(self) -> str:
        return f"a table of topic options: {', '.join(DEFAULT_OPTIONS)}"

    def known_names(self) -> Sequence[str]:
        return DEFAULT_OPTIONS

    def entry(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            value = self._from_word(name, value)
        if name == "format" and value == "object":
            raise UnfitValue("a format for bytes ('object' passes references, in one process only)")
        try:
            checked = changed_options(TopicOptions(), {name: value})
        except InvalidRequest as error:
            # The value itself is for the caller to repeat.
            what = str(error).removeprefix(f"{name} must be ")
            raise UnfitValue(re.split("[,;] not ", what)[0]) from None
        return getattr(checked, name)

    def _from_word(self, name: str, text: str) -> Any:
        if text.lower() in ("none", "unlimited"):
            return None
        if name.endswith("_hooks"):
            return [one for one in text.split("+") if one]
        kind = _OPTION_KINDS.get(name)
        if kind is None:
            return text
        return kind.from_text(text)

    def word(self, name: str, value: Any) -> str:
        if isinstance(value, list):
            return "+".join(value)
        kind = _OPTION_KINDS.get(name)
        return str(value) if kind is None or value == "none" else kind.to_text(value)

    def to_plain(self, value: Any) -> Any:
        return {
            name: "none" if one is None else list(one) if isinstance(one, tuple) else one
            for name, one in value.items()
        }


DEFAULT_OPTIONS = tuple(name for name in OPTION_NAMES if name != "partitions")
"""Without the number of partitions: a topic that publish creates has none."""

_OPTION_KINDS: dict[str, Kind] = {
    "retention_count": Count(),
    "retention_bytes": Bytes(),
    "retention_age": Seconds(),
    "ttl": Seconds(),
    "max_message_bytes": Bytes(),
    "rate_limit": Rate(),
    "rate_burst": Count(),
    "max_deliveries": Count(),
    "keep_until_settled": Boolean(),
}


def shown_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _can_be_host(host: str) -> bool:
    """Whether any colons are part of an IPv6 address."""
    if ":" not in host:
        return True
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"

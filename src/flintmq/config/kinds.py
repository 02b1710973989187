"""Kinds of configuration values: how each is read from text and from a file, and shown. Pure.

Text comes from flags and the environment; values are what TOML or YAML parsed. A kind says what it
allows and nothing more: the caller knows where a value came from, and adds the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, ClassVar

from ..errors import InvalidRequest
from ..fsync_policy import POLICIES, FsyncPolicy
from ..model import OPTION_NAMES, TopicOptions, changed_options

OFF = "off"
LEVELS = ("debug", "info", "warning", "error")

Address = tuple[str, int]
NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


class UnfitValue(Exception):
    """A value that is not allowed. The text says what is allowed, and does not repeat the value."""


class Kind:
    """One kind of value. `None` means the setting is off."""

    metavar: ClassVar[str] = "VALUE"
    what: ClassVar[str]
    """What is allowed, in words, to follow "must be"."""
    can_be_off: bool = False

    @property
    def allowed(self) -> str:
        return f"{self.what}, or off" if self.can_be_off else self.what

    def from_text(self, text: str) -> Any:
        if self.can_be_off and text.strip().lower() in (OFF, ""):
            return None
        return self.parse(text)

    def from_value(self, value: Any) -> Any:
        """A value from TOML or YAML. Text is read as on the command line."""
        if isinstance(value, str):
            return self.from_text(value)
        if self.can_be_off and (value is None or value is False):
            return None
        return self.convert(value)

    def parse(self, text: str) -> Any:
        raise NotImplementedError

    def convert(self, value: Any) -> Any:
        """A value that is not text; most kinds have none."""
        raise UnfitValue(self.allowed)

    def to_plain(self, value: Any) -> Any:
        """A value that JSON, TOML and YAML can write, and `from_value` reads back."""
        return value

    def to_text(self, value: Any) -> str:
        """Text that `from_text` reads back."""
        return str(self.to_plain(value))


class Boolean(Kind):
    metavar = "BOOL"
    what = "true or false"

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise UnfitValue(self.allowed)

    def convert(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise UnfitValue(self.allowed)
        return value

    def to_text(self, value: Any) -> str:
        return "true" if value else "false"


@dataclass(frozen=True)
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

    def parse(self, text: str) -> float:
        found = _NUMBER.fullmatch(text.strip())
        if found is None or (found["suffix"] and found["suffix"] not in self.suffixes):
            raise UnfitValue(self.allowed)
        digits, times = found["digits"], self.suffixes.get(found["suffix"], 1)
        number = float(digits) * times
        if self.is_whole:
            if not number.is_integer():
                raise UnfitValue(self.allowed)
            number = int(digits) * int(times) if digits.lstrip("+-").isdecimal() else int(number)
        return self._within(number)

    def convert(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
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

    is_whole = False
    what = "a number"


class Share(Number):
    """A part of a whole."""

    is_whole = False
    what = "a share"


@dataclass(frozen=True)
class Bytes(Number):
    unit = "bytes"
    what = "a number of bytes (also as 64KiB, 16MiB, 1GiB)"
    can_be_off: bool = False
    metavar = "BYTES"
    suffixes: ClassVar[Mapping[str, float]] = {
        "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
        "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    }  # fmt: skip

    @property
    def allowed(self) -> str:
        return super().allowed + (", or off" if self.can_be_off else "")

    def show(self, number: Any) -> str:
        if number is None:
            return OFF
        for name in ("TiB", "GiB", "MiB", "KiB"):
            size = int(self.suffixes[name])
            if number >= size and number % size == 0:
                return f"{int(number) // size}{name}"
        return f"{number:,}"

    def to_text(self, value: Any) -> str:
        return self.show(value).replace(",", "")


class Seconds(Number):
    unit = "seconds"
    what = "a number of seconds (also as 500ms, 30s, 5m, 2h, 1d)"
    is_whole = False
    metavar = "SECONDS"
    suffixes: ClassVar[Mapping[str, float]] = {
        "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800,
    }  # fmt: skip

    def show(self, number: Any) -> str:
        return f"{int(number):,}" if float(number).is_integer() else f"{number:g}"


@dataclass(frozen=True)
class Choice(Kind):
    choices: Sequence[str]
    metavar: ClassVar[str] = "WORD"

    @property
    def allowed(self) -> str:
        return _or(self.choices)

    def parse(self, text: str) -> str:
        word = text.strip().lower()
        if word not in self.choices:
            raise UnfitValue(self.allowed)
        return word

    def convert(self, value: Any) -> str:
        if not isinstance(value, bool):
            raise UnfitValue(self.allowed)
        return self.parse("on" if value else OFF)  # YAML reads these bare words as booleans


@dataclass(frozen=True)
class HostPort(Kind):
    port: int
    """The default port, for an address without one."""
    can_be_off: bool = False
    metavar: ClassVar[str] = "HOST:PORT"
    what: ClassVar[str] = "an address HOST:PORT (or HOST, or :PORT)"

    def parse(self, text: str) -> Address:
        text = text.strip()
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")) or text.endswith("]"):
            host, port = text, str(self.port)  # a name, or an IPv6 address on its own
        host = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
        is_host = not any(c.isspace() or c in "/@[]" for c in host) and _can_be_host(host)
        if not (text and is_port and is_host):
            raise UnfitValue(self.allowed)
        return host or "127.0.0.1", int(port)

    def to_plain(self, value: Any) -> Any:
        return OFF if value is None else shown_address(value)


class AdvertisedAddress(HostPort):
    """Where others reach this broker, which listens elsewhere."""


class Words(Kind):
    """Any words: a list in a file, separated by commas as text."""

    metavar = "WORD,..."
    what = "words, none of them empty"
    pattern: ClassVar[re.Pattern[str]] = re.compile(".+", re.DOTALL)

    def parse(self, text: str) -> tuple[str, ...]:
        return self.convert([word for part in text.split(",") if (word := part.strip())])

    def convert(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(
            isinstance(word, str) and self.pattern.fullmatch(word) for word in value
        ):
            raise UnfitValue(self.allowed)
        return tuple(value)

    def to_plain(self, value: Any) -> Any:
        return list(value)

    def to_text(self, value: Any) -> str:
        return ",".join(value)


class HostNames(Words):
    metavar = "NAME,..."
    what = "host names, without ports"
    pattern = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,63}")

    def convert(self, value: Any) -> tuple[str, ...]:
        return tuple(name.lower() for name in super().convert(value))


class Origins(Words):
    metavar = "ORIGIN,..."
    what = "origins as SCHEME://HOST[:PORT], or *"
    pattern = re.compile(r"\*|[A-Za-z][A-Za-z0-9+.-]*://[^/,\s?#@]+")

    def convert(self, value: Any) -> tuple[str, ...]:
        return tuple(origin.lower() for origin in super().convert(value))


class Networks(Words):
    metavar = "NETWORK,..."
    what = "addresses or networks such as 10.0.0.0/8"

    def convert(self, value: Any) -> tuple[str, ...]:
        words = super().convert(value)
        try:
            return tuple(str(ip_network(word, strict=False)) for word in words)
        except ValueError:
            raise UnfitValue(self.allowed) from None


class NodeName(Kind):
    metavar = "NAME"
    what = "a name of letters, digits, dots, dashes and underscores"
    can_be_off = True

    def parse(self, text: str) -> str:
        if not NODE_NAME.fullmatch(text.strip()):
            raise UnfitValue(self.allowed)
        return text.strip()

    def to_plain(self, value: Any) -> Any:
        return OFF if value is None else value


@dataclass(frozen=True)
class HostPorts(Words):
    """Addresses; each is kept as HOST:PORT, with the port."""

    port: int
    metavar: ClassVar[str] = "HOST:PORT,..."
    what: ClassVar[str] = "addresses as HOST:PORT"

    def convert(self, value: Any) -> tuple[str, ...]:
        try:
            return tuple(
                shown_address(HostPort(self.port).parse(word)) for word in super().convert(value)
            )
        except UnfitValue:
            raise UnfitValue(self.allowed) from None


@dataclass(frozen=True)
class NodeAddresses(Words):
    """The nodes of a cluster; each is kept as NAME=HOST:PORT, with the port."""

    port: int
    metavar: ClassVar[str] = "NAME=HOST:PORT,..."
    what: ClassVar[str] = "nodes as NAME=HOST:PORT, each name and address once"

    def convert(self, value: Any) -> tuple[str, ...]:
        pairs = [word.partition("=") for word in super().convert(value)]
        try:
            nodes = {
                NodeName().parse(name): shown_address(HostPort(self.port).parse(address))
                for name, _, address in pairs
            }
        except UnfitValue:
            raise UnfitValue(self.allowed) from None
        if len(nodes) != len(pairs) or len(set(nodes.values())) != len(pairs):
            raise UnfitValue(self.allowed)
        return tuple(f"{name}={address}" for name, address in nodes.items())


@dataclass(frozen=True)
class FilePath(Kind):
    can_be_off: bool = False
    metavar: ClassVar[str] = "PATH"
    what: ClassVar[str] = "a path"

    def parse(self, text: str) -> Path:
        if not text.strip() or "\0" in text:
            raise UnfitValue(self.allowed)
        return Path(text)

    def to_plain(self, value: Any) -> Any:
        return OFF if value is None else str(value)


class Fsync(Kind):
    metavar = "POLICY"
    what = POLICIES

    def parse(self, text: str) -> FsyncPolicy:
        try:
            return FsyncPolicy.parse(text.strip())
        except InvalidRequest:
            raise UnfitValue(self.allowed) from None

    def to_plain(self, value: Any) -> Any:
        return str(value)


class TableKind(Kind):
    """Names with values: a table in a file, `name=value,name=value` as text."""

    metavar = "NAME=VALUE,..."
    known_names: ClassVar[Sequence[str]] = ()
    """The names that are allowed; empty if any name is."""

    def entry(self, name: str, value: Any) -> Any:
        """One value, checked. Unfit says what is allowed for that name."""
        raise NotImplementedError

    def parse(self, text: str) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals:
                raise UnfitValue(f"NAME=VALUE pairs separated by commas; {part!r} is not one")
            pairs[name.strip()] = value.strip()
        return self.convert(pairs)

    def convert(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UnfitValue(self.allowed)
        return {name: self._named(name, one) for name, one in flat(value).items()}

    def _named(self, name: str, value: Any) -> Any:
        if self.known_names and name not in self.known_names:
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


class LogLevels(TableKind):
    metavar = "MODULE=LEVEL,..."
    what = f"a table of module = level, each level {_or(LEVELS)}"

    def entry(self, name: str, value: Any) -> str:
        if value not in LEVELS:
            raise UnfitValue(_or(LEVELS))
        return str(value)


class TopicDefaults(TableKind):
    """Options of topics, as `create_topic` takes them; sizes and times can have a unit."""

    metavar = "OPTION=VALUE,..."
    known_names = tuple(name for name in OPTION_NAMES if name != "partitions")
    # Without the number of partitions: a topic that publish creates has none.
    what = f"a table of topic options: {', '.join(known_names)}"

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
        return text if kind is None else kind.from_text(text)

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

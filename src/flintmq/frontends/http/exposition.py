"""The text that Prometheus reads: families, samples, escaping. Pure.

    # HELP flintmq_topic_messages Messages that a topic holds.
    # TYPE flintmq_topic_messages gauge
    flintmq_topic_messages{topic="orders"} 42

Format 0.0.4, and OpenMetrics 1.0 for who asks for it: the samples are the same, what is said of a
family differs. All samples of a family stand together, so a page keeps them by family while it
goes from topic to topic.

A table of metrics is a tuple of families that are read from one subject: a topic, a server.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from ...observe.metrics import Histogram

Kind = Literal["counter", "gauge", "histogram"]
Value = int | float | Histogram | Mapping[Any, float] | None
"""A number; a histogram; numbers by the value of the last label, or of the last labels; nothing."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

CHUNK_LINES = 400
"""Lines that become bytes in one step."""

LABEL_CHARS_MAX = 200
"""Names may have 65,535 bytes, and stand in every line: longer ones end in a digest."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_UNITS = ("bytes", "seconds")


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    value: Callable[[Any], Value] = lambda subject: None
    """Reads the sample from what the table is about."""

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), f"{self.name} is no name of a family"
        assert (self.kind == "counter") == self.name.endswith("_total"), self.name
        assert self.help.endswith("."), f"{self.name}: help is a sentence"

    @property
    def unit(self) -> str | None:
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in _UNITS else None

    def head(self, *, is_open: bool) -> str:
        """What is said of it before its samples."""
        name = self.name.removesuffix("_total") if is_open else self.name
        head = f"# HELP {name} {_escaped_help(self.help)}\n# TYPE {name} {self.kind}\n"
        if is_open and self.unit is not None:
            head += f"# UNIT {name} {self.unit}\n"
        return head


Table = tuple[Family, ...]
Reads = str | Callable[[Any], Value]
"""How a value is read from its subject: by the name of an attribute, or a function."""


def families(
    labels: tuple[str, ...], *rows: tuple[str, str, Reads] | tuple[str, str, Reads, Kind]
) -> Table:
    """A table: of each family the name, the help, the value; a kind, where its name does not
    say it."""
    table: list[Family] = []
    for name, help, value, *kinds in rows:
        kind: Kind = "counter" if name.endswith("_total") else "gauge"
        reads = attrgetter(value) if isinstance(value, str) else value
        table.append(Family(name, kinds[0] if kinds else kind, help, labels, reads))
    return tuple(table)


class Page:
    """Samples by family. `labels` are text, made once for all families that share them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(dict.fromkeys(families))
        self._lines: dict[str, list[str]] = {family.name: [] for family in self._families}
        assert len(self._lines) == len(self._families), "two families have one name"
        self.series = 0

    def add(self, family: Family, value: Value, labels: str = "") -> None:
        """A sample, or those of a histogram or mapping; of None, nothing."""
        if isinstance(value, int):
            text = f"{value:d}"
        elif isinstance(value, float):
            text = _number(value)
        else:
            self._add_several(family, value, labels)
            return
        self.series += 1
        name = family.name
        self._lines[name].append(f"{name}{{{labels}}} {text}\n" if labels else f"{name} {text}\n")

    def add_table(self, table: Table, subject: object, labels: str = "") -> None:
        """A sample of each family of a table."""
        for family in table:
            self.add(family, family.value(subject), labels)

    def _add_several(
        self, family: Family, value: Histogram | Mapping[Any, float] | None, labels: str
    ) -> None:
        if isinstance(value, Histogram):
            self._add_histogram(family, value, labels)
        elif value is not None:
            for key, count in value.items():
                keys = key if isinstance(key, tuple) else (key,)
                names = family.labels[-len(keys) :]
                said = [label(name, str(one)) for name, one in zip(names, keys, strict=True)]
                self.add(family, count, ",".join([labels, *said] if labels else said))

    def _add_histogram(self, family: Family, histogram: Histogram, labels: str) -> None:
        name, lines = family.name, self._lines[family.name]
        cumulative = histogram.cumulative()
        comma = "," if labels else ""
        for bound, count in zip(histogram.bounds, cumulative, strict=False):
            lines.append(f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}\n')
        lines.append(f'{name}_bucket{{{labels}{comma}le="+Inf"}} {cumulative[-1]}\n')
        braced = f"{{{labels}}}" if labels else ""
        lines.append(f"{name}_sum{braced} {_number(histogram.total)}\n")
        lines.append(f"{name}_count{braced} {cumulative[-1]}\n")
        self.series += len(cumulative) + 2

    def chunks(self, *, is_open: bool) -> Iterator[bytes]:
        """The page in pieces, each small enough for one step."""
        for family in self._families:
            lines = self._lines[family.name]
            if lines:
                head = family.head(is_open=is_open)
                for start in range(0, len(lines), CHUNK_LINES):
                    yield (head + "".join(lines[start : start + CHUNK_LINES])).encode()
                    head = ""
        if is_open:
            yield b"# EOF\n"


def label(name: str, value: str) -> str:
    """`name="value"`, escaped, and cut where it is very long."""
    if len(value) > LABEL_CHARS_MAX:
        digest = hashlib.blake2s(value.encode(), digest_size=8).hexdigest()
        value = f"{value[:LABEL_CHARS_MAX]}...{digest}"
    return f'{name}="{escaped(value)}"'


def escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))

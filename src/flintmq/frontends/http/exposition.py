"""The text that Prometheus reads: families, samples, escaping. Pure.

    # HELP flintmq_topic_messages Messages that a topic holds.
    # TYPE flintmq_topic_messages gauge
    flintmq_topic_messages{topic="orders"} 42

Format 0.0.4, and OpenMetrics 1.0 for who asks for it: the samples are the same, what is said of a
family differs. All samples of a family stand together, so a page keeps them by family while it
goes from topic to topic.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...observe.metrics import Histogram

Kind = Literal["counter", "gauge", "histogram"]

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


Table = Mapping[str, Family]
"""Families by the attribute that their samples are read from."""


def families(
    labels: tuple[str, ...], *rows: tuple[str, str, str] | tuple[str, str, str, Kind]
) -> dict[str, Family]:
    """A table: of each family the attribute, the name, the help; a kind, where its name does not
    say it."""
    table: dict[str, Family] = {}
    for attribute, name, help, *kinds in rows:
        kind: Kind = "counter" if name.endswith("_total") else "gauge"
        table[attribute] = Family(name, kinds[0] if kinds else kind, help, labels)
    return table


class Page:
    """Samples by family. `labels` are text, made once for all families that share them."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._lines: dict[str, list[str]] = {family.name: [] for family in families}
        self._families = families
        assert len(self._lines) == len(families), "a family stands once"
        self.series = 0

    def add(self, family: Family, value: float, labels: str = "") -> None:
        self.series += 1
        text = str(value) if type(value) is int else _number(value)
        self._lines[family.name].append(
            f"{family.name}{{{labels}}} {text}\n" if labels else f"{family.name} {text}\n"
        )

    def add_table(self, table: Table, figures: object, labels: str = "") -> None:
        """A sample of each family of a table: an attribute of `figures`, or what a mapping has by
        that name. What is None or not there is left out."""
        for name, family in table.items():
            value = figures.get(name) if isinstance(figures, Mapping) else getattr(figures, name)
            if family.kind == "histogram" and value is not None:
                self.add_histogram(family, value, labels)
            elif value is not None:
                self.add(family, int(value) if isinstance(value, bool) else value, labels)

    def add_counts(self, family: Family, label: str, counts: Mapping[str, int], rest: str) -> None:
        """One sample for each key of `counts`, which is the value of `label`."""
        for key, count in counts.items():
            if count:
                self.add(family, count, f'{rest},{label}="{escaped(key)}"')

    def add_histogram(self, family: Family, histogram: Histogram, labels: str = "") -> None:
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

"""What rows are partitioned by: a column, `region`, or a part of a time, `day(at)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import InvalidRequest

TimeUnit = Literal["year", "month", "day", "hour"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
TIMES = {"timestamp", "timestamp_ltz", "timestamp_ntz"}
_CALL = re.compile(r"\s*(\w+)\s*\(\s*([^()]+?)\s*\)\s*")


@dataclass(frozen=True, slots=True)
class Partition:
    column: str
    unit: TimeUnit | None = None

    @property
    def name(self) -> str:
        """The column of its values: `region`, or `at_day` of `day(at)`."""
        return self.column if self.unit is None else f"{self.column}_{self.unit}"

    def fits(self, kind: str) -> bool:
        """Whether a column of this type can be cut down to its unit."""
        return self.unit is None or kind in TIMES or (kind == "date" and self.unit != "hour")


def partition_of(text: str) -> Partition:
    """Raises InvalidRequest for an unknown unit."""
    found = _CALL.fullmatch(text)
    if found is None:
        return Partition(text)
    for unit in UNITS:
        if found[1].lower() == unit:
            return Partition(found[2], unit)
    raise InvalidRequest(
        f"{text!r} is not a partition: write a column, or one of "
        f"{', '.join(f'{unit}({found[2]})' for unit in UNITS)}"
    )


def partitions_of(texts: Sequence[str]) -> list[Partition]:
    return [partition_of(text) for text in texts]

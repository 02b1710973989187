"""Routing: which partition a message of a partitioned topic goes to.

A topic made with `partitions=n` is a row of plain topics `name/0` to `name/n-1`. A message with a
key goes to `key_hash(key) % n`, so that messages of one key keep their order; messages without one
go round robin, batch by batch. The caller may name the partition instead, or give a function.

The hash is the same in every process and version (see `batch.key_hash`), and text is its UTF-8:

    key         hash          of 3   of 8   of 64
    "a"         4008768297       0      1      41
    "42"        1920025367       2      7      23
    "user-1"    1144721187       0      3      35
    "größer"    2823796530       0      2      50
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ..batch import BatchBuilder, Key, key_hash
from ..errors import InvalidRequest, RoutingFailed

Route = int | list[int] | Literal["round_robin"] | Callable[[Key | None, Any, int], int]
"""A partition, 'round_robin' whatever the keys, or a function of key, value and the number of
partitions. The value it gets is the encoded one."""


def partition_name(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


class Router:
    """Spreads the rows of one connection over partitions."""

    def __init__(self) -> None:
        self._turn: dict[str, int] = {}

    def spread(
        self, topic: str, rows: BatchBuilder, partitions: int, route: Route | None
    ) -> dict[int, BatchBuilder]:
        """The rows by partition, in order. Raises before anything is published."""
        if isinstance(route, int) and not isinstance(route, bool):
            if not 0 <= route < partitions:
                raise InvalidRequest(
                    f"partition {route} of {topic!r} does not exist: it has {partitions}, "
                    f"0 to {partitions - 1}"
                )
            return {route: rows}
        if isinstance(route, list):
            return _split(rows, self._listed(topic, rows, partitions, route))
        if callable(route):
            return _split(rows, self._called(topic, rows, partitions, route))
        if route not in (None, "round_robin"):
            raise InvalidRequest(
                f"partition must be a number, 'round_robin' or a function, not {route!r}"
            )
        if route == "round_robin" or not rows.has_keys:
            return {self._next(topic, partitions): rows}
        keyless: int | None = None
        wanted = []
        for row in range(rows.row_count):
            key = rows.key(row)
            if key is not None:
                wanted.append(key_hash(key) % partitions)
                continue
            if keyless is None:
                keyless = self._next(topic, partitions)
            wanted.append(keyless)
        return _split(rows, wanted)

    def _listed(
        self, topic: str, rows: BatchBuilder, partitions: int, route: list[int]
    ) -> list[int]:
        if len(route) != rows.row_count:
            raise InvalidRequest(f"partition has {len(route)} entries for {rows.row_count} values")
        for partition in route:
            if type(partition) is not int or not 0 <= partition < partitions:
                raise InvalidRequest(
                    f"partition {partition!r} of {topic!r} does not exist: it has "
                    f"{partitions}, 0 to {partitions - 1}"
                )
        return route

    def _next(self, topic: str, partitions: int) -> int:
        turn = self._turn.get(topic, 0)
        self._turn[topic] = turn + 1
        return turn % partitions

    def _called(
        self,
        topic: str,
        rows: BatchBuilder,
        partitions: int,
        route: Callable[[Key | None, Any, int], int],
    ) -> list[int]:
        wanted = []
        for row in range(rows.row_count):
            try:
                partition = route(rows.key(row), rows.value(row), partitions)
            except Exception as error:
                raise RoutingFailed(topic, f"raised {type(error).__name__}: {error}") from error
            if (
                isinstance(partition, bool)
                or not isinstance(partition, int)
                or not 0 <= partition < partitions
            ):
                raise RoutingFailed(
                    topic, f"returned {partition!r}, not a partition from 0 to {partitions - 1}"
                )
            wanted.append(partition)
        return wanted


def _split(rows: BatchBuilder, wanted: list[int]) -> dict[int, BatchBuilder]:
    if len(set(wanted)) == 1:
        return {wanted[0]: rows}
    by_partition: dict[int, BatchBuilder] = {}
    for row, partition in enumerate(wanted):
        part = by_partition.get(partition)
        if part is None:
            part = by_partition[partition] = rows.empty_like()
        part.extend(rows, row, row + 1)
    return by_partition

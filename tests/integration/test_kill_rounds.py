"""The checker behind the kill tests finds what it is there to find."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .kill_child import connect, value_of
from .kill_rounds import Result, Rounds


async def store(directory: Path, *values: bytes) -> None:
    async with connect(directory) as mq:
        await mq.publish_batch("t", values)


def checked(directory: Path, stored: list[bytes], told: list[str]) -> Result:
    rounds = Rounds(directory, seed=0)
    if stored:
        asyncio.run(store(directory, *stored))
    for line in told:
        rounds._hear(line.split(" "))
    asyncio.run(rounds._verify())
    return rounds.result


FIRST, SECOND = value_of("w", 0), value_of("w", 1)


def test_true_receipts_are_good(tmp_path: Path) -> None:
    result = checked(tmp_path, [FIRST, SECOND], ["T t w 0 2", "A t w 0 2 0 0"])

    assert result.is_good
    assert (result.acknowledged, result.stored) == (2, 2)


def test_what_was_begun_may_be_there_or_not(tmp_path: Path) -> None:
    result = checked(tmp_path, [FIRST], ["T t w 0 1", "T t w 1 1"])

    assert result.is_good
    assert result.unacknowledged_but_stored == 1


@pytest.mark.parametrize(
    ("stored", "told", "fault"),
    [
        ([FIRST], ["T t w 0 2", "A t w 0 2 0 0"], "lost"),
        ([FIRST], ["T t w 0 2", "A t w 0 2 -1 0"], "lost"),
        ([], ["T t w 0 1", "A t w 0 1 0 0"], "lost"),
        ([FIRST, SECOND], ["T t w 0 1"], "invented"),
        ([FIRST[:-1]], ["T t w 0 1"], "invented"),
        ([FIRST, FIRST], ["T t w 0 1"], "doubled"),
        ([SECOND, FIRST], ["T t w 0 2"], "disordered"),
    ],
)
def test_false_receipts_are_found(
    tmp_path: Path, stored: list[bytes], told: list[str], fault: str
) -> None:
    result = checked(tmp_path, stored, told)

    assert not result.is_good
    assert getattr(result, fault)


@pytest.mark.parametrize("opened_at", [4, 9])
def test_a_position_that_nobody_committed_is_found(tmp_path: Path, opened_at: int) -> None:
    result = checked(tmp_path, [], ["N 0", "t 5", "c 5", "t 8", f"N {opened_at}"])

    assert result.positions_wrong

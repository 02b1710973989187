"""A process with a broker and members in it is killed at random moments: queues keep faith."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .kill_child import connect
from .kill_rounds import ROOT
from .queue_kill_child import GROUPS, KEYED, LONG_LEASE, MIXED, ORDERS, value_of
from .queue_kill_rounds import QueueRounds, Result
from .queue_poison_child import COUNT, FORMS, GROUP, TOPIC

MAX_DELIVERIES = 5
"""The default of a topic."""


@pytest.mark.slow
def test_forty_kills_lose_no_message_and_no_ack(tmp_path: Path) -> None:
    result = QueueRounds(tmp_path / "data", seed=40).run(40)

    print(result)
    assert result.is_good, str(result)
    assert result.published > 500
    assert result.acked > 200
    assert result.redelivered > 50
    assert min(result.nacked, result.rejected, result.cancelled, result.drained) > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_kills_its_process_each_time_goes_to_the_dead_letters_alone(
    tmp_path: Path, form: str
) -> None:
    got: Counter[str] = Counter()
    lives = 0
    while True:
        command = [sys.executable, "-m", f"{__package__}.queue_poison_child", str(tmp_path), form]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        for line in child.stdout.splitlines():
            if line.startswith("G "):
                got[line.split(" ")[1]] += 1
        if child.returncode != -signal.SIGKILL:
            break
        lives += 1
    assert child.returncode == 0, child.stderr
    letters, lag = asyncio.run(poison_left(tmp_path))

    assert lives == MAX_DELIVERIES
    assert letters == [("poison", MAX_DELIVERIES)], "those that were taken beside it live on"
    assert lag == 0
    assert len(got) == COUNT
    assert got["poison"] == MAX_DELIVERIES


async def poison_left(directory: Path) -> tuple[list[tuple[str, int]], int]:
    async with connect(directory) as mq:
        letters = await mq.dead_letters(TOPIC, GROUP, max=1000)
        lag = (await mq.group_stats(TOPIC, GROUP)).lag
        return [(letter.message.value.decode(), letter.delivery_count) for letter in letters], lag


# --- the checker finds what it is there to find

VALUES = [value_of("w", number, "k1", 0) for number in range(3)]
PUBLISHED = ["p {topic} w 0 3", "P {topic} w 0 3 0"]


async def store(directory: Path, topic: str, *, acked: int = 0, rejected: int = 0) -> None:
    group = GROUPS[topic]
    async with connect(directory) as mq:
        await mq.publish_batch(topic, VALUES, key="k1")
        await mq.poll(topic, group, max=1, lease=0.001, order=ORDERS[topic])
        await mq.reset_group(topic, group, 0)
        for number in range(acked + rejected):
            message = (await mq.poll(topic, group, max=1))[0]
            if number < acked:
                await message.ack()
            else:
                await message.reject("test")


def checked(
    directory: Path, told: list[str], *, topic: str = MIXED, settled: dict[str, int] | None = None
) -> Result:
    rounds = QueueRounds(directory, seed=0, delays_last=0)
    asyncio.run(store(directory, topic, **settled or {}))
    for line in PUBLISHED + told:
        rounds._hear(line.format(topic=topic).split(" "))
    asyncio.run(rounds._verify(is_end=True))
    return rounds.result


def test_what_was_told_truly_is_good(tmp_path: Path) -> None:
    told = [f"D {{topic}} 0 1 5 7 {VALUES[0]}", "a {topic} 0", "A {topic} 0"]
    told += [f"D {{topic}} 1 1 5 7 {VALUES[1]}", "r {topic} 1", "R {topic} 1"]
    result = checked(tmp_path, told, settled={"acked": 1, "rejected": 1})

    assert result.is_good, str(result)
    assert (result.published, result.stored, result.drained, result.dead) == (3, 3, 1, 1)


@pytest.mark.parametrize(
    ("told", "settled", "fault"),
    [
        (["P {topic} w 3 1 3"], {}, "lost"),
        (["R {topic} 0"], {}, "lost"),
        ([], {"acked": 1}, "lost"),
        (["D {topic} 0 1 5 7 w 9 k1 0"], {}, "invented"),
        (["a {topic} 0", "A {topic} 0"], {}, "came_again"),
        (["R {topic} 0", f"D {{topic}} 0 2 5 7 {VALUES[0]}"], {"rejected": 1}, "came_again"),
        (["S {topic} 5 2"], {}, "invisible"),
        ([f"D {{topic}} 0 2 5 7 {VALUES[0]}"] * 2, {}, "counts_went_back"),
        ([f"D {{topic}} 0 9 5 7 {VALUES[0]}"], {}, "counts_went_back"),
        (["N {topic} 0 500", f"D {{topic}} 0 1 5 7 {VALUES[0]}"], {}, "too_early"),
        (["p {topic} v 0 1", "D {topic} 0 1 5 7 v 0 k1 500"], {}, "too_early"),
        (["a {topic} 0", "A {topic} 0"], {"rejected": 1}, "buried_twice"),
    ],
)
def test_what_was_told_in_vain_is_found(
    tmp_path: Path, told: list[str], settled: dict[str, int], fault: str
) -> None:
    result = checked(tmp_path, told, settled=settled)

    assert not result.is_good
    assert getattr(result, fault), str(result)


def test_a_key_that_goes_back_is_found(tmp_path: Path) -> None:
    told = [f"D {{topic}} {at} 1 5 {7 + n} {VALUES[at]}" for n, at in enumerate((0, 2, 1))]
    result = checked(tmp_path, told, topic=KEYED)

    assert result.disordered


def test_a_key_whose_messages_come_together_and_go_back_from_the_first_on_is_good(
    tmp_path: Path,
) -> None:
    times = [(0, 1, 7), (1, 1, 7), (2, 1, 7), (0, 2, 8), (1, 1, 9), (2, 1, 9)]
    told = [f"D {{topic}} {at} {n} 5 {token} {VALUES[at]}" for at, n, token in times]
    told.insert(4, "A {topic} 0")

    assert not checked(tmp_path, told, topic=KEYED, settled={"acked": 1}).disordered


async def hold(directory: Path) -> None:
    async with connect(directory) as mq:
        await mq.publish_batch(MIXED, VALUES)
        await mq.poll(MIXED, GROUPS[MIXED], max=1, lease=LONG_LEASE)
        rounds = QueueRounds(directory, seed=0)
        for line in PUBLISHED:
            rounds._hear(line.format(topic=MIXED).split(" "))
        told = rounds._told[MIXED]
        await rounds._look_at_ready(mq, MIXED, told, dict(enumerate(VALUES)))
        assert rounds.result.invisible


def test_a_message_that_somebody_holds_is_missed(tmp_path: Path) -> None:
    asyncio.run(hold(tmp_path))

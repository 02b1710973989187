"""The watchdog of the event loop: every turn is measured, and one that is too long has a name."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
import uvloop

from flintmq.loop import probe as probing
from flintmq.loop.probe import TurnsSeen, probe
from flintmq.loop.turns import UNKNOWN, Overrun, Turns
from flintmq.patterns import check_pattern

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def hold(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=LOOPS[request.param])


def test_what_a_turn_does_is_measured_and_waiting_is_not(runner: asyncio.Runner) -> None:
    turns: list[float] = []
    took: list[float] = []

    async def work() -> None:
        watching = probe(asyncio.get_running_loop(), lambda busy, cpu: turns.append(busy))
        assert watching is not None
        await asyncio.sleep(0)
        turns.clear()
        began = time.perf_counter()
        await asyncio.sleep(0.2)
        hold(0.05)
        await asyncio.sleep(0.2)
        took.append(time.perf_counter() - began)
        watching.stop()
        await asyncio.sleep(0)

    with runner:
        runner.run(work())

    assert max(turns) >= 0.05
    assert sum(turns) <= took[0] - 0.35, "it slept for 0.4 s of them"


def test_what_a_callback_of_a_socket_does_counts(runner: asyncio.Runner) -> None:
    turns: list[float] = []
    received = asyncio.Event()

    class Slow(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            hold(0.05)
            asyncio.get_running_loop().call_later(0.01, received.set)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Slow, "127.0.0.1", 0)
        watching = probe(loop, lambda busy, cpu: turns.append(busy))
        assert watching is not None
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        await received.wait()
        writer.close()
        server.close()
        watching.stop()
        await asyncio.sleep(0)

    with runner:
        runner.run(work())

    assert max(turns) >= 0.05


@pytest.mark.slow
def test_a_turn_over_the_limit_is_counted_by_the_function_that_held_it(
    runner: asyncio.Runner,
) -> None:
    turns = Turns()

    async def work() -> None:
        class Slow(str):
            """Keeps a function of ours busy."""

            def split(self, *arguments: Any) -> list[str]:
                hold(0.2)
                return super().split(*arguments)

        turns.start()
        await asyncio.sleep(0)
        check_pattern(Slow("orders.*"))
        await asyncio.sleep(0)
        turns.stop()
        await asyncio.sleep(0)

    with runner:
        runner.run(work())

    assert turns.longest.seconds >= 0.2
    assert "patterns.check_pattern" in turns.longest.what
    assert turns.overruns[turns.longest.what] == 1
    assert turns.seconds.cumulative()[-1] >= 2


def test_a_turn_over_the_limit_is_logged_with_what_it_took_of_the_processor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for turn in Overrun(0.5, 0.4, "a loop of ours"), Overrun(0.5, 0.01, "a busy machine"):
        Turns()._note(turn)

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "500 ms" in caplog.records[0].getMessage()
    assert "a loop of ours" in caplog.records[0].getMessage()


def test_a_turn_that_nobody_saw_is_told_in_plain_words() -> None:
    assert "the machine, or its disk, was busy" in str(Overrun(0.5, 0.0, UNKNOWN))
    assert "what it did was not seen" in str(Overrun(0.5, 0.5, UNKNOWN))


def test_short_turns_are_in_the_sum_as_they_are_in_the_count(runner: asyncio.Runner) -> None:
    turns = Turns()

    async def work() -> None:
        turns.start()
        for _ in range(100):
            await asyncio.sleep(0)

    with runner:
        runner.run(work())
        assert sum(turns.seconds.counts) >= 99
        assert turns.seconds.total > turns._histogram.total
        assert turns.cpu_seconds.total > turns._cpu_histogram.total

        async def stop() -> None:
            turns.stop()

        runner.run(stop())


def test_a_wait_for_the_disk_is_called_that() -> None:
    slow = Overrun(1.5, 0.0, "storage.group_commit.GroupCommit._wake in storage.filesystem.X.sync")
    busy = Overrun(1.5, 1.5, "storage.group_commit.GroupCommit._wake in batch.builder.seal")

    assert "waited for its disk" in str(slow)
    assert "disk" not in str(busy).partition(":")[0]


def test_a_long_turn_is_not_charged_with_the_short_ones_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_processor, reads = 10.0, 0

    def thread_time() -> float:
        nonlocal reads
        reads += 1
        return on_processor

    monkeypatch.setattr(probing, "thread_time", thread_time)
    told: list[tuple[float, float]] = []
    seen = TurnsSeen(lambda seconds, cpu: told.append((seconds, cpu)))
    for _ in range(104):  # of 100 microseconds each
        on_processor += 0.0001
        seen.add(100_000)
    on_processor += 0.03
    seen.add(50_000_000)

    assert seen.short == 104
    assert seen.short_seconds == pytest.approx(0.0104)
    ((seconds, cpu),) = told
    assert (seconds, cpu) == pytest.approx((0.05, 0.03))
    assert reads < 30

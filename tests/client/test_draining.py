"""A subscription that is closed lets work in progress finish, within its grace time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import flintmq
from flintmq.engine.leading.member import GroupMember
from flintmq.group_model import Lease
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.serving import serving


@pytest.fixture
async def mq(clock: ManualClock) -> flintmq.Client:
    mq = await flintmq.connect("memory://", clock=clock)
    await mq.publish_batch("jobs", [b"0", b"1", b"2", b"3"])
    return mq


async def lag_and_leased(mq: flintmq.Client) -> tuple[int, int]:
    stats = await mq.group_stats("jobs", "workers")
    return stats.lag, stats.in_flight


async def test_closing_waits_for_handlers_and_takes_no_new_messages(
    mq: flintmq.Client, background: Background
) -> None:
    finish = asyncio.Event()
    done: list[bytes] = []

    async def handle(message: flintmq.Delivery) -> None:
        await finish.wait()
        done.append(message.value)

    subscription = mq.subscribe("jobs", "workers", grace=10)
    run = await background.waiting(subscription.run(handle, concurrency=2))
    closing = await background.waiting(subscription.close())
    assert await lag_and_leased(mq) == (4, 2), "what was taken ahead is given back at once"

    finish.set()
    await closing
    await run
    assert done == [b"0", b"1"]
    assert await lag_and_leased(mq) == (2, 0)
    await mq.close()


async def test_after_the_grace_time_handlers_are_cancelled_and_their_messages_given_back(
    mq: flintmq.Client,
    background: Background,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(message: flintmq.Delivery) -> None:
        await asyncio.Event().wait()

    subscription = mq.subscribe("jobs", "workers", grace=10)
    run = await background.waiting(subscription.run(handle, concurrency=2))
    closing = await background.waiting(subscription.close())
    await clock.advance(9.9)
    assert not closing.done()
    await clock.advance(0.1)
    await closing
    await run
    assert "2 messages still being processed after 10 seconds" in caplog.text
    again = await mq.poll("jobs", "workers")
    assert [message.delivery_count for message in again] == [1, 1, 1, 1]
    await mq.close()


async def test_a_run_that_is_cancelled_while_it_drains_waits_no_longer(
    mq: flintmq.Client, background: Background
) -> None:
    async def handle(message: flintmq.Delivery) -> None:
        await asyncio.Event().wait()

    subscription = mq.subscribe("jobs", "workers", grace=10)
    run = await background.waiting(subscription.run(handle))
    await background.waiting(subscription.close())
    run.cancel()
    await background.settle()
    assert run.cancelled()
    assert await lag_and_leased(mq) == (4, 0)


async def test_a_loop_in_another_task_ends_behind_its_message(
    mq: flintmq.Client, background: Background
) -> None:
    finish = asyncio.Event()
    done: list[bytes] = []
    subscription = await mq.subscribe("jobs", "workers", grace=10)

    async def work() -> None:
        async for message in subscription:
            await finish.wait()
            await message.ack()
            done.append(message.value)

    working = await background.waiting(work())
    closing = await background.waiting(subscription.close())
    finish.set()
    await closing
    await working
    assert done == [b"0"]
    assert await lag_and_leased(mq) == (3, 0)
    await mq.close()


async def test_who_leaves_a_loop_with_a_message_in_hand_waits_for_nothing(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async with mq.subscribe("jobs", "workers") as subscription:
        async for _ in subscription:
            break
    assert await lag_and_leased(mq) == (4, 0)
    assert clock.monotonic() == 0
    await mq.close()


async def test_closing_the_connection_drains_all_subscriptions_at_once(
    mq: flintmq.Client, background: Background, clock: ManualClock
) -> None:
    async def handle(message: flintmq.Delivery) -> None:
        await asyncio.Event().wait()

    runs = [
        await background.waiting(mq.subscribe("jobs", group, grace=10).run(handle))
        for group in ("a", "b", "c")
    ]
    closing = await background.waiting(mq.close())
    await clock.advance(10)
    assert closing.done()
    await asyncio.gather(closing, *runs)


@pytest.mark.parametrize("ack", ["auto", "manual"])
async def test_a_handler_whose_message_is_settled_already_may_finish_too(
    mq: flintmq.Client, background: Background, ack: Literal["auto", "manual"]
) -> None:
    finish = asyncio.Event()
    done: list[bytes] = []

    async def handle(message: flintmq.Delivery) -> None:
        await message.ack()
        await finish.wait()
        done.append(message.value)

    subscription = mq.subscribe("jobs", "workers", grace=10, ack=ack)
    run = await background.waiting(subscription.run(handle, concurrency=2))
    closing = await background.waiting(subscription.close())
    finish.set()
    await closing
    await run
    assert done == [b"0", b"1"]
    assert await lag_and_leased(mq) == (2, 0)
    await mq.close()


@pytest.mark.parametrize("how", ["async for", "read"])
async def test_every_task_that_reads_is_waited_for_not_only_the_last(
    mq: flintmq.Client, background: Background, how: str
) -> None:
    finish = asyncio.Event()
    done: list[bytes] = []
    subscription = await mq.subscribe("jobs", "workers", grace=10)

    async def work() -> None:
        message = await anext(subscription) if how == "async for" else await subscription.read()
        await finish.wait()
        await message.ack()
        done.append(message.value)

    working = await background.waiting(work())
    await (await anext(subscription)).ack()
    closing = await background.waiting(subscription.close())
    finish.set()
    await closing
    await working
    assert done == [b"0"]
    await mq.close()


async def test_who_closes_the_connection_with_a_message_in_hand_waits_for_nothing(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async for _ in await mq.subscribe("jobs", "workers"):
        break
    await mq.close()
    assert clock.monotonic() == 0


async def test_a_handler_that_closes_the_connection_does_not_wait_for_itself(
    mq: flintmq.Client, clock: ManualClock
) -> None:
    async def handle(message: flintmq.Delivery) -> None:
        await mq.close()

    await mq.subscribe("jobs", "workers").run(handle, concurrency=2)
    assert clock.monotonic() == 0


def test_a_blocking_connection_that_is_closed_waits_for_loops_in_other_threads() -> None:
    begun, finish = threading.Event(), threading.Event()
    done: list[bytes] = []

    def work(jobs: flintmq.BlockingSubscription) -> None:
        for message in jobs:
            begun.set()
            finish.wait()
            message.ack()
            done.append(message.value)

    mq = flintmq.connect_sync("memory://")
    mq.publish_batch("jobs", [b"0", b"1"])
    jobs = mq.subscribe("jobs", "workers", grace=60).open()
    working = threading.Thread(target=work, args=[jobs])
    working.start()
    begun.wait()
    closing = threading.Thread(target=mq.close)
    closing.start()
    while not jobs._has_ended():
        pass
    finish.set()
    closing.join()
    working.join()
    assert done == [b"0"]


@pytest.mark.slow
async def test_a_subscription_that_is_closed_while_it_opens_holds_nothing(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as url:
        async with flintmq.connect(url) as mq:
            await mq.publish_batch("jobs", [b"0", b"1"])
            subscription = mq.subscribe("jobs", "workers")
            opening = asyncio.ensure_future(subscription.__aenter__())
            await asyncio.sleep(0)
            await subscription.close()
            with pytest.raises(flintmq.Closed, match="subscription of 'workers' to 'jobs'"):
                await opening
            assert (await mq.group_stats("jobs", "workers")).members == 0


@pytest.mark.slow
async def test_what_is_acknowledged_before_it_is_handed_out_is_handed_out_during_a_close(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as url:
        async with flintmq.connect(url) as mq:
            await mq.publish_batch("jobs", [b"0", b"1"])
            subscription = await mq.subscribe("jobs", "workers", ack="auto")
            await subscription._api.wait(None)
            seen: list[bytes] = []

            async def work() -> None:
                async for message in subscription:
                    seen.append(message.value)

            working = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            await subscription.close()
            await working
            assert (len(seen), await lag_and_leased(mq)) == (1, (1, 0))


async def test_a_close_of_the_connection_goes_on_to_its_end_even_if_cancelled(
    mq: flintmq.Client, background: Background
) -> None:
    subscription = await mq.subscribe("jobs", "workers")

    async def work() -> None:
        async for message in subscription:
            await message.ack()

    working = await background.waiting(work())
    closing = background.start(mq.close())
    await asyncio.sleep(0)
    closing.cancel()
    await mq.close()
    await background.settle()
    assert closing.cancelled()
    assert working.done()


# --- what is hopeless


async def rejected(mq: flintmq.Client) -> list[tuple[bytes, str]]:
    return [
        (letter.message.value, letter.reason) for letter in await mq.dead_letters("jobs", "workers")
    ]


async def test_a_value_that_cannot_be_decoded_is_a_dead_letter_at_once_with_one_line_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish("jobs", b"{", content_type="application/json")
        async with mq.subscribe("jobs", "workers") as subscription:
            message = await subscription.read()
            async with message.process():
                message.decode()
        ((value, reason),) = await rejected(mq)
    assert value == b"{"
    assert reason.startswith("DecodeFailed: ")
    (line,) = [record for record in caplog.records if record.name == "flintmq.client"]
    assert "jobs offset 0 becomes a dead letter of group 'workers'" in line.getMessage()
    assert line.exc_info is None


@pytest.mark.parametrize(
    ("options", "error", "is_dead"),
    [
        ({"dead_on": (KeyError, ValueError)}, ValueError("bad"), True),
        ({"dead_on": ValueError}, UnicodeError("a kind of ValueError"), True),
        ({"dead_on": KeyError}, ValueError("bad"), False),
        ({"retry_on": OSError}, ValueError("bad"), True),
        ({"retry_on": OSError}, TimeoutError("a kind of OSError"), False),
        ({"dead_on": UnicodeError, "retry_on": ValueError}, UnicodeError("bad"), True),
        ({"dead_on": UnicodeError, "retry_on": ValueError}, ValueError("bad"), False),
        ({}, ValueError("bad"), False),
    ],
    ids=str,
)
async def test_types_of_errors_say_whether_a_message_is_tried_again(
    mq: flintmq.Client, options: Any, error: Exception, is_dead: bool
) -> None:
    async with mq, mq.subscribe("jobs", "workers", prefetch=1) as subscription:
        message = await subscription.read()
        async with message.process(**options):
            raise error
        expected = [(b"0", f"{type(error).__name__}: {error}")] if is_dead else []
        assert await rejected(mq) == expected


async def test_decoding_is_tried_again_where_that_is_asked_for(clock: ManualClock) -> None:
    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish("jobs", b"{", content_type="application/json")
        async with mq.subscribe("jobs", "workers") as subscription:
            message = await subscription.read()
            async with message.process(retry_on=flintmq.DecodeFailed):
                message.decode()
        assert await rejected(mq) == []


async def test_what_is_no_exception_class_is_refused(mq: flintmq.Client) -> None:
    async with mq, mq.subscribe("jobs", "workers") as subscription:
        message = await subscription.read()
        with pytest.raises(flintmq.InvalidRequest, match="dead_on must be an exception class"):
            message.process(dead_on="ValueError")  # type: ignore[arg-type]


# --- SIGTERM

ASYNC_RUN = """
    import asyncio, sys
    import flintmq

    async def main(url):
        async with flintmq.connect(url) as mq:
            async def handle(message):
                print("begun", flush=True)
                await asyncio.sleep(0.3)
                print("done", flush=True)
            await mq.subscribe("jobs", "workers", prefetch=4, grace=30).run(handle, concurrency=1)
            print("left", flush=True)

    asyncio.run(main(sys.argv[1]))
"""
ASYNC_FOR = """
    import asyncio, sys
    import flintmq

    async def main(url):
        async with flintmq.connect(url) as mq, mq.subscribe("jobs", "workers", grace=30) as jobs:
            async for message in jobs:
                print("begun", flush=True)
                await asyncio.sleep(0.3)
                await message.ack()
                print("done", flush=True)
            print("left", flush=True)

    asyncio.run(main(sys.argv[1]))
"""
BLOCKING_RUN = """
    import sys, time
    import flintmq

    def handle(message):
        print("begun", flush=True)
        time.sleep(0.3)
        print("done", flush=True)

    with flintmq.connect_sync(sys.argv[1]) as mq:
        mq.subscribe("jobs", "workers", prefetch=4, grace=30).run(handle, concurrency=1)
        print("left", flush=True)
"""
BLOCKING_FOR = """
    import sys, time
    import flintmq

    with flintmq.connect_sync(sys.argv[1]) as mq, mq.subscribe("jobs", "workers", grace=30) as jobs:
        for message in jobs:
            print("begun", flush=True)
            time.sleep(0.3)
            message.ack()
            print("done", flush=True)
        print("left", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [ASYNC_RUN, ASYNC_FOR, BLOCKING_RUN, BLOCKING_FOR],
    ids=["async run", "async for", "blocking run", "blocking for"],
)
def test_sigterm_ends_a_worker_behind_the_message_it_works_on(program: str, tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        with flintmq.connect_sync(url) as mq:
            mq.publish_batch("jobs", [b"0", b"1", b"2", b"3", b"4", b"5"])
        script = tmp_path / "worker.py"
        script.write_text(textwrap.dedent(program))
        worker = subprocess.Popen(
            [sys.executable, str(script), url], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        os.kill(worker.pid, signal.SIGTERM)
        rest = worker.communicate(timeout=60)[0].splitlines()

        assert rest == ["done", "left"]
        assert worker.returncode == 0
        with flintmq.connect_sync(url) as mq:
            stats = mq.group_stats("jobs", "workers")
            assert (stats.lag, stats.in_flight) == (5, 0)


def begun(program: str, url: str, folder: Path) -> subprocess.Popen[str]:
    """A program that has printed its first line."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program))
    running = subprocess.Popen(
        [sys.executable, str(script), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    return running


@pytest.mark.slow
def test_a_loop_of_reads_has_its_grace_after_sigterm(tmp_path: Path) -> None:
    program = """
        import asyncio, sys
        import flintmq

        async def main(url):
            async with flintmq.connect(url) as mq, mq.subscribe("jobs", "workers") as jobs:
                while True:
                    message = await jobs.read()
                    print("begun", flush=True)
                    await asyncio.sleep(0.3)
                    await message.ack()
                    print("done", flush=True)

        asyncio.run(main(sys.argv[1]))
    """
    with serving(tmp_path) as url:
        with flintmq.connect_sync(url) as mq:
            mq.publish_batch("jobs", [b"0", b"1"])
        running = begun(program, url, tmp_path)
        running.terminate()
        said = running.communicate(timeout=60)[0].splitlines()
        assert said[0] == "done"
        assert said[-1] == "flintmq.errors.Closed: the subscription is closed"


@pytest.mark.slow
def test_a_second_sigterm_ends_a_program_that_subscribes_anew(tmp_path: Path) -> None:
    program = """
        import asyncio, sys
        import flintmq

        async def main(url):
            async with flintmq.connect(url) as mq:
                while True:
                    async with mq.subscribe("jobs", "workers") as jobs:
                        print("begun", flush=True)
                        async for message in jobs:
                            await message.ack()

        asyncio.run(main(sys.argv[1]))
    """
    with serving(tmp_path) as url:
        running = begun(program, url, tmp_path)
        running.terminate()
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        running.terminate()
        assert running.communicate(timeout=60)[0] == ""
        assert running.returncode == -signal.SIGTERM


LEFT_OPEN = """
    import asyncio, sys, time
    import flintmq

    async def main(url):
        mq = await flintmq.connect(url)
        await mq.subscribe("jobs", "workers")

    asyncio.run(main(sys.argv[1]))
    print("begun", flush=True)
    time.sleep(60)
"""
LEFT_OPEN_BLOCKING = """
    import sys, time
    import flintmq

    with flintmq.connect_sync(sys.argv[1]) as mq:
        left = mq.subscribe("jobs", "workers").open()
    print("begun", flush=True)
    time.sleep(60)
"""
WAITS_FOR_SOMETHING_ELSE = """
    import asyncio, sys
    import flintmq
    from flintmq.client import sigterm

    async def main(url):
        sigterm.LEAVE_SECONDS = 0.1
        async with flintmq.connect(url) as mq, mq.subscribe("jobs", "workers", grace=0.1):
            print("begun", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main(sys.argv[1]))
"""
FORKED = """
    import os, sys, time
    import flintmq

    with flintmq.connect_sync(sys.argv[1]) as mq, mq.subscribe("jobs", "workers"):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(1)
        os.kill(child, 15)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("begun" if ended == -15 else ended, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [LEFT_OPEN, LEFT_OPEN_BLOCKING, FORKED, WAITS_FOR_SOMETHING_ELSE],
    ids=["its loop has ended", "its connection is closed", "it was forked off", "it waits"],
)
def test_sigterm_ends_what_has_nothing_to_finish(program: str, tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        running = begun(program, url, tmp_path)
        running.terminate()
        assert running.communicate(timeout=50)[0] == ""
        assert running.returncode == -signal.SIGTERM


def test_a_program_that_handles_sigterm_itself_is_left_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with flintmq.connect_sync("memory://") as mq, mq.subscribe("jobs", "workers") as jobs:
            signal.raise_signal(signal.SIGTERM)
            mq.publish("jobs", b"0")
            jobs.read().ack()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    with flintmq.connect_sync("memory://") as mq, mq.subscribe("jobs", "workers"):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("error", [flintmq.OutcomeUnknown("lost"), flintmq.Disconnected("b", "x")])
async def test_a_settle_whose_outcome_is_unknown_does_not_end_a_run(
    mq: flintmq.Client,
    clock: ManualClock,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: flintmq.FlintError,
) -> None:
    """The broker was killed while it was told: the message may come again, the others do come."""
    seen: list[bytes] = []
    ack = GroupMember.ack

    async def fails_once(self: GroupMember, leases: Sequence[Lease]) -> None:
        if leases[0][1][0] == (0, 1):
            raise error
        await ack(self, leases)

    async def handle(message: flintmq.Delivery) -> None:
        seen.append(message.value)

    monkeypatch.setattr(GroupMember, "ack", fails_once)
    subscription = mq.subscribe("jobs", "workers")
    run = await background.waiting(subscription.run(handle, concurrency=1))
    assert seen == [b"0", b"1", b"2", b"3"]
    assert "jobs offset 0 was not settled" in caplog.text
    closing = background.start(subscription.close())
    await clock.advance(10)
    await asyncio.gather(closing, run)
    await mq.close()

"""Tasks: functions that are called elsewhere, later."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import msgspec
import pydantic
import pytest

import flintmq
from flintmq import App, InvalidRequest, NoResult, RunningTask, TaskCancelled, TaskFailed
from flintmq.testing import ManualClock, run


class Size(msgspec.Struct):
    width: int
    height: int = 10


class Invoice(pydantic.BaseModel):
    id: int


async def test_a_task_is_called_with_the_arguments_it_was_sent_with() -> None:
    app, got = App(), []

    @app.task
    async def resize(path: str, size: Size, *, quality: int = 90) -> None:
        got.append((path, size, quality))

    async with run(app) as t:
        await resize.send("a.png", Size(20))
        await resize.send("b.png", size=Size(30, 40), quality=50)
        await t.idle()

    assert got == [("a.png", Size(20), 90), ("b.png", Size(30, 40), 50)]


async def test_the_result_comes_back_as_the_type_the_function_names() -> None:
    app = App()

    @app.task
    async def double(size: Size) -> Size:
        return Size(size.width * 2, size.height * 2)

    @app.task
    def invoice(id: int, who: Invoice) -> Invoice:
        return Invoice(id=id + who.id)

    @app.task(name="other")
    def plain(number: int) -> list[int]:
        return [number]

    async with run(app):
        handle = await double.send(Size(1, 2))
        assert await handle.get() == Size(2, 4)
        assert await (await invoice.send(2, Invoice(id=5))).get() == Invoice(id=7)
        assert await (await plain.send(3)).get() == [3]


async def test_a_result_is_found_by_the_id_alone_also_later() -> None:
    app = App()

    @app.task
    async def double(number: int) -> int:
        return number * 2

    async with run(app) as t:
        first = await double.send(4)
        own = await double.send(5, task_id="order-5")
        await t.idle()
        assert await double.handle(first.id).get(1) == 8
        assert await double.handle("order-5").get(1) == 10
        assert await own.get() == 10
        assert (await double.handle("order-5").state()).status == "done"


async def test_tasks_are_delayed_and_ordered_as_messages_are() -> None:
    app, got = App(), []

    @app.task(concurrency=1, prefetch=1)
    async def note(what: str) -> None:
        got.append(what)

    async with run(app) as t:
        await note.send("later", delay=60)
        await note.send("low")
        await t.idle()
        assert got == ["low"]
        await t.advance(60)

    assert got == ["low", "later"]


async def test_a_task_that_fails_is_tried_again_and_fails_for_good() -> None:
    app, attempts = App(), []

    @app.task(retries=2, backoff=10, jitter=0)
    async def bill(order: int, task: RunningTask) -> None:
        attempts.append(task.attempt)
        raise RuntimeError("the bank is closed")

    async with run(app, raises=False) as t:
        handle = await bill.send(7)
        await t.idle()
        state = await handle.state()
        assert (state.status, state.error) == ("retrying", "RuntimeError: the bank is closed")
        await t.advance(10)
        await t.advance(20)
        with pytest.raises(TaskFailed, match="the bank is closed"):
            await handle.get(1)
        (letter,) = await t.mq.dead_letters("tasks.bill", "workers")

    assert attempts == [1, 2, 3]
    assert letter.reason == "RuntimeError: the bank is closed"


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_task_that_kills_its_workers_fails_and_its_neighbours_are_done(
    retries: int,
) -> None:
    app, clock, done = App(), ManualClock(), []

    @app.task(retries=retries)
    async def render(page: int) -> None:
        done.append(page)

    async with flintmq.connect("memory://", clock=clock) as mq:
        await app.open(mq)
        deadly, *others = [await render.send(page) for page in range(4)]
        lives = max(retries, 1) + 2
        for life in range(lives):
            had = await mq.poll("tasks.render", "workers", 64, lease=30)
            assert len(had) == (4 if life < lives - 1 else 1), "the last time it is alone"
            await clock.advance(30.1)
        async with app.running():
            with pytest.raises(TaskFailed, match=f"to workers {lives} times, the last time"):
                await deadly.get()
            for handle in others:
                await handle.get()
        await app.close()

    assert sorted(done) == [1, 2, 3]


async def test_who_waits_for_a_task_that_has_not_ended_hears_so() -> None:
    app, complaints = App(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))

    @app.task
    async def bill(order: int) -> None: ...

    async with run(app) as t:
        handle = await bill.send(7, delay=60)
        waiting = asyncio.create_task(handle.get(timeout=5))
        await t.advance(5)
        with pytest.raises(NoResult, match=r"has not ended within 5 s \(waiting\)"):
            await waiting
        del waiting
        gc.collect()

    assert complaints == [], "asyncio prints nothing of its own"


async def test_progress_is_seen_while_the_task_runs() -> None:
    app, go_on = App(), asyncio.Event()

    @app.task
    async def resize(path: str, task: RunningTask) -> str:
        task.report(0.2)
        task.report(0.4, "half of it")
        await go_on.wait()
        return "done"

    async with run(app) as t:
        handle = await resize.send("a.png")
        await t.clock.settle()
        state = await handle.state()
        assert (state.status, state.progress, state.note) == ("running", 0.4, "half of it")
        go_on.set()
        assert await handle.get() == "done"


async def test_a_plain_function_reports_its_progress_from_its_thread() -> None:
    app = App()

    @app.task
    def resize(path: str) -> float:
        task = flintmq.current_task()
        assert task is not None
        task.report(0.5)
        return task.progress

    async with run(app):
        assert await (await resize.send("a.png")).get() == 0.5


async def test_a_task_that_takes_too_long_is_stopped_and_tried_again() -> None:
    app, attempts = App(), []

    @app.task(timeout=30, retries=1, backoff=1, jitter=0)
    async def bill(order: int, task: RunningTask) -> None:
        attempts.append(task.attempt)
        await asyncio.Event().wait()

    async with run(app, raises=False) as t:
        handle = await bill.send(7)
        await t.clock.settle()
        await t.clock.advance(30)
        await t.clock.advance(1)
        await t.clock.advance(30)
        with pytest.raises(TaskFailed, match="took longer than its timeout of 30 s"):
            await handle.get(1)

    assert attempts == [1, 2]


async def test_a_plain_function_that_takes_too_long_is_stopped_at_its_next_step() -> None:
    app, ended = App(), []

    @app.task(timeout=0.05, retries=0)
    def spin() -> None:
        try:
            while True:
                pass
        finally:
            ended.append(True)

    async with flintmq.connect("memory://") as mq, app.running(mq):
        handle = await spin.send()
        with pytest.raises(TaskFailed, match="timeout"):
            await handle.get()

    assert ended == [True]


AFTER_A_STOP = """
import sys
from flintmq.app.running_task import CURRENT, RunningTask, TaskStopped, stoppable

def begin():
    running = RunningTask("1", "spin", None, 1, None)
    CURRENT.set(running)
    return running

def spin():
    begin_at.stop_thread()
    while True:
        pass

begin_at = begin()
try:
    stoppable(spin)()
except TaskStopped:
    print("stopped")

begin_at = begin()
try:
    stoppable(begin_at.stop_thread)()
except TaskStopped:
    print("stopped at the very end")

sys.settrace(lambda *_: None)
begin()
print("traced")
"""


def test_a_plain_function_that_was_stopped_leaves_its_process_as_it_was() -> None:
    """A debugger once went round for ever after the first one."""
    done = subprocess.run(
        [sys.executable, "-c", AFTER_A_STOP], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.replace("stopped at the very end\n", "") == "stopped\ntraced\n", done.stderr


async def test_a_task_that_runs_is_cancelled() -> None:
    app, ended = App(), []

    @app.task
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async with run(app) as t:
        handle = await wait.send()
        await t.clock.settle()
        await handle.cancel()
        await t.idle()
        with pytest.raises(TaskCancelled):
            await handle.get(1)
        assert (await t.mq.group_stats("tasks.wait", "workers")).lag == 0

    assert ended == [True]


async def test_a_task_that_waits_is_cancelled_and_never_begun() -> None:
    app, got = App(), []

    @app.task
    async def note(what: str) -> None:
        got.append(what)

    async with flintmq.connect("memory://") as mq:
        async with app.running(mq):
            pass
        await app.open(mq)
        handle = await note.send("now")
        later = await note.send("later", delay=1000)
        await handle.cancel()
        await later.cancel()
        async with app.running(mq):
            for one in (handle, later):
                with pytest.raises(TaskCancelled):
                    await one.get(5)
        await app.close()

    assert got == []


async def test_only_one_task_of_a_unique_key_is_there_at_a_time() -> None:
    app, got = App(), []

    @app.task(unique="customer")
    async def bill(customer: str, amount: int) -> int:
        got.append((customer, amount))
        return amount

    async with run(app) as t:
        first = await bill.send("ann", 1, delay=10)
        again = await bill.send("ann", 2)
        other = await bill.send("bob", 3)
        assert again.id == first.id != other.id
        await t.advance(10)
        assert await again.get(1) == 1
        await bill.send("ann", 4)
        await t.idle()

    assert got == [("bob", 3), ("ann", 1), ("ann", 4)]


async def test_of_senders_that_race_for_a_unique_key_one_wins_and_all_have_its_task() -> None:
    app, got = App(), []

    @app.task
    async def bill(customer: str) -> None:
        got.append(customer)

    async with run(app) as t:
        handles = await asyncio.gather(
            *(bill.send("ann", unique="ann", delay=1) for _ in range(20))
        )
        await t.advance(1)

    assert len({one.id for one in handles}) == 1
    assert got == ["ann"]


async def test_a_task_can_be_unique_for_a_time() -> None:
    app, got = App(), []

    @app.task(unique=True, unique_for=60)
    async def remind(customer: str) -> None:
        got.append(customer)

    async with run(app) as t:
        await remind.send("ann")
        await t.idle()
        await remind.send("ann")
        await t.advance(59)
        await remind.send("ann")
        await t.idle()
        assert got == ["ann"]
        await t.advance(1)
        await remind.send("ann")
        await t.idle()
        assert got == ["ann", "ann"]
        await t.advance(2000)
        assert await t.mq._broker.definitions("unique") == []


async def test_a_unique_key_is_free_after_its_task_has_failed_or_was_cancelled() -> None:
    app = App()

    @app.task(unique=True, retries=0)
    async def bill(customer: str) -> None:
        raise RuntimeError(customer)

    async with run(app, raises=False) as t:
        failed = await bill.send("ann")
        await t.idle()
        later = await bill.send("ann", delay=10)
        await later.cancel()
        third = await bill.send("ann", delay=10)

    assert len({failed.id, later.id, third.id}) == 3


async def test_the_same_id_sent_again_is_the_same_task() -> None:
    app, got = App(), []

    @app.task
    async def bill(order: int) -> int:
        got.append(order)
        return order

    async with run(app) as t:
        first = await bill.send(7, task_id="order-7")
        second = await bill.send(7, task_id="order-7")
        await t.idle()
        assert first.receipt is not None
        assert second.receipt is not None
        assert [first.receipt.duplicate, second.receipt.duplicate] == [False, True]
        assert await second.get(1) == 7

    assert got == [7]


async def test_a_chain_hands_each_result_to_the_next() -> None:
    app = App()

    @app.task
    async def fetch(url: str) -> str:
        return f"page of {url}"

    @app.task
    async def count(text: str, letter: str) -> int:
        return text.count(letter)

    async with run(app):
        handle = await flintmq.chain(fetch.step("here"), count.step(letter="e")).send()
        assert await handle.get() == 3


async def test_a_chain_that_breaks_fails_to_its_end() -> None:
    app = App()

    @app.task(retries=0)
    async def fetch(url: str) -> str:
        raise KeyError(url)

    @app.task
    async def count(text: str) -> int:
        return len(text)

    async with run(app, raises=False):
        handle = await flintmq.chain(fetch.step("here"), count.step(), count.step()).send()
        with pytest.raises(TaskFailed, match=r"it follows task .* which failed"):
            await handle.get()


async def test_a_group_gives_its_results_in_order() -> None:
    app = App()

    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0 if number % 2 else 0.001)
        return number * 2

    async with run(app):
        handle = await flintmq.group(double.step(number) for number in range(50)).send()
        assert await handle.get() == [number * 2 for number in range(50)]
        assert await handle.done_count() == 50


async def test_what_follows_a_group_gets_the_list_of_its_results() -> None:
    app = App()

    @app.task
    async def words(text: str) -> list[str]:
        return text.split()

    @app.task
    async def size(text: str) -> int:
        return len(text)

    @app.task
    async def total(sizes: list[int]) -> int:
        return sum(sizes)

    async with run(app):
        sizes = flintmq.group(size.step("abc"), size.step("de"))
        handle = await flintmq.chain(words.step("a b"), sizes, total.step()).send()
        assert await handle.get() == 5


async def test_what_follows_a_group_fails_with_it() -> None:
    app = App()

    @app.task(retries=0)
    async def size(text: str) -> int:
        raise KeyError(text)

    @app.task
    async def total(sizes: list[int]) -> int:
        return sum(sizes)

    async with run(app, raises=False):
        sizes = flintmq.group([size.step("abc")])
        handle = await flintmq.chain(sizes, total.step()).send()
        with pytest.raises(TaskFailed, match="it follows a group of tasks"):
            await handle.get()


async def test_a_task_published_by_hand_is_done_as_well() -> None:
    app, got = App(), []

    @app.task
    async def resize(path: str, width: int = 100) -> None:
        got.append((path, width))

    async with run(app, raises=False) as t:
        await t.publish("tasks.resize", {"path": "a.png"})
        await t.publish("tasks.resize", {"width": 3})
        await t.idle()
        (letter,) = await t.mq.dead_letters("tasks.resize", "workers")

    assert got == [("a.png", 100)]
    assert "lack 'path'" in letter.reason


def test_tasks_are_sent_and_awaited_without_an_event_loop(tmp_path: Any) -> None:
    app = App(f"file://{tmp_path}")

    @app.task
    async def double(number: int) -> int:
        return number * 2

    handle = double.send_sync(4, delay=100)
    group = flintmq.group(double.step(number) for number in range(3)).send_sync()
    with pytest.raises(NoResult):
        group.get(timeout=0.001)
    handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.get(timeout=5)
    assert len(group) == 3
    app.close_sync()


async def test_a_plain_task_sends_another_one_over_the_connection_of_the_app() -> None:
    app, got = App(), []

    @app.task
    def first() -> None:
        second.send_sync(3)

    @app.task
    async def second(number: int) -> None:
        got.append(number)

    async with run(app) as t:
        await first.send()
        await t.idle()
        with pytest.raises(InvalidRequest, match="use `await"):
            second.send_sync(4)

    assert got == [3]


def test_mistakes_in_a_call_are_seen_by_its_sender() -> None:
    app = App()

    @app.task
    async def resize(path: str, width: int = 100) -> None: ...

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("a", 1, 2), {}),
        (("a",), {"path": "b"}),
        (("a",), {"height": 3}),
    ]
    for args, kwargs in calls:
        with pytest.raises(TypeError, match=r"resize\(\)"):
            resize.bound(args, kwargs)


async def test_an_argument_of_another_type_is_seen_by_its_sender() -> None:
    """And not in the dead letters of a worker elsewhere."""
    app = App()

    @app.task
    async def resize(size: Size, width: int = 100) -> None: ...

    async with run(app):
        with pytest.raises(
            TypeError, match=r"resize\(\) takes other arguments: Expected `int`.*wid"
        ):
            await resize.send(Size(1), width="wide")
        with pytest.raises(TypeError, match=r"resize\(\) takes other arguments"):
            await flintmq.chain(resize.step(1)).send()
        await (await resize.send(Size(1))).get(timeout=5)


def test_mistakes_in_a_task_are_seen_where_it_is_made() -> None:
    app = App()

    with pytest.raises(InvalidRequest, match="'delay' has the name of an option of send"):

        @app.task
        async def one(delay: int) -> None: ...

    with pytest.raises(InvalidRequest, match="unique must be True, the name of an argument"):

        @app.task(unique="nobody")
        async def two(path: str) -> None: ...

    with pytest.raises(InvalidRequest, match="at most 86400 seconds"):

        @app.task(result_ttl=10**6)
        async def three(path: str) -> None: ...

    @app.task
    async def four() -> None: ...

    with pytest.raises(InvalidRequest, match="the same name 'four'"):
        app.task(name="four")(four.function)


async def test_a_task_whose_results_are_not_kept_says_so() -> None:
    app = App()

    @app.task(result_ttl=None)
    async def note(what: str) -> str:
        return what

    async with run(app) as t:
        handle = await note.send("a")
        await t.idle()
        with pytest.raises(InvalidRequest, match="keeps no results"):
            await handle.get()
        assert "task-results" not in await t.mq.topics()

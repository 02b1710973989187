"""`flintmq serve` as operators meet it: start, ready, stop, signals, wrong use, what it costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.installing import remedy
from flintmq.net.wire.operations import Op
from tests.patience import free_port
from tests.servers.test_garbage import Raw, raw

from .served import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]
STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    made: list[Served] = []

    def make(*arguments: str, directory: str = "data", listen: str = "127.0.0.1:0") -> Served:
        made.append(Served(tmp_path / directory, *arguments, listen=listen))
        return made[-1]

    yield make
    for broker in made:
        await broker.leave()


def batch(value: bytes) -> bytes:
    rows = BatchBuilder()
    rows.append(value)
    return rows.seal().encode()


async def event(connection: Raw, op: int) -> list[object]:
    while True:
        frame = await connection.frame()
        if frame.op == op:
            decoded: list[object] = msgspec.msgpack.decode(frame.control)
            return decoded


# --- stopping


@pytest.mark.parametrize("stop", STOPS)
async def test_a_broker_that_is_told_to_stop_refuses_finishes_releases_and_exits_with_0(
    serve: Serve, stop: signal.Signals
) -> None:
    broker = await serve("--drain-seconds", "20").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.create_topic("full", retention_count=1, overflow="block")
        await mq.publish("full", b"0")
        await mq.publish("jobs", b"job")
    async with raw(broker.address) as client, raw(broker.address) as other:
        await client.open()
        await other.open()
        other.ask(Op.JOIN_GROUP, 1, ["jobs", "workers"])
        stream = (await other.answer(1))[1][0]
        other.ask(Op.TAKE_LEASED, 2, [stream, 1, 600.0, None])
        assert (await other.answer(2))[0] == Op.REPLY
        other.ask(Op.JOIN_GROUP, 3, ["full", "workers"])
        full = (await other.answer(3))[1][0]
        other.ask(Op.TAKE_LEASED, 4, [full, 1, 30.0, 5.0])
        _, (token, *_rest) = await other.answer(4)
        client.ask(Op.PUBLISH, 1, ["full", 1, True, None], batch(b"1"))
        client.ask(Op.PING, 2, [])
        await client.answer(2)

        broker.process.send_signal(stop)
        assert await event(client, Op.DRAIN) == [20.0]
        client.ask(Op.PUBLISH, 3, ["jobs"], batch(b"late"))
        op, fault = await client.answer(3)
        assert (op, fault[0]) == (Op.ERROR, "Draining"), "what is new is refused"

        other.ask(Op.SETTLE, 5, [full, "ack", [[token, [[0, 1]]]]])
        op, outcomes = await client.answer(1)
        assert op == Op.REPLY, f"what was under way is finished: {outcomes}"
        other._writer.close()  # nobody waits for who is gone
        await client.wait_closed()
    assert await broker.wait() == 0
    assert await broker.complaints() == []

    await broker.start()
    async with flintmq.connect(broker.url) as mq:
        assert (await mq.topic_stats("full")).next_offset == 2
        assert (await mq.topic_stats("jobs")).next_offset == 1
        found = await mq.poll("jobs", "workers", 10, wait=30)
        assert found.values == [b"job"], "its lease of ten minutes was kept for the grace time"
    assert await broker.end(stop) == 0


async def test_what_never_ends_is_waited_for_so_long_and_no_longer(serve: Serve) -> None:
    broker = await serve("--drain-seconds", "0.3").start()
    async with raw(broker.address) as client:
        await _block_for_ever(client)
        assert await broker.end(signal.SIGTERM, seconds=15) == 0


@pytest.mark.parametrize("stop", STOPS)
async def test_a_second_signal_stops_at_once(serve: Serve, stop: signal.Signals) -> None:
    broker = await serve("--drain-seconds", "600").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish("orders", b"kept")
    async with raw(broker.address) as client:
        await _block_for_ever(client)
        broker.process.send_signal(signal.SIGTERM)
        await event(client, Op.DRAIN)
        assert broker.process.returncode is None
        assert await broker.end(stop, seconds=15) == 1
    assert await broker.complaints() == ["flintmq: second stop signal: exiting immediately"]
    await broker.start()
    async with flintmq.connect(broker.url) as mq:
        assert (await mq.topic_stats("orders")).message_count == 1


async def _block_for_ever(client: Raw) -> None:
    await client.open()
    client.ask(Op.CREATE_TOPIC, 1, ["full", {"retention_count": 1, "overflow": "block"}])
    await client.answer(1)
    client.ask(Op.OPEN_READER, 2, ["full", "slow"])
    await client.answer(2)
    for id in (3, 4):
        client.ask(Op.PUBLISH, id, ["full", 1, True, None], batch(b"x"))
    client.ask(Op.PING, 5, [])
    await client.answer(5)


async def test_parked_subscribers_do_not_hold_up_the_end(serve: Serve) -> None:
    broker = await serve("--drain-seconds", "600").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.create_topic("orders")
        async with mq.reader("orders") as reader, mq.live("orders") as feed:
            waiting = [
                asyncio.ensure_future(reader.read()),
                asyncio.ensure_future(feed.read()),
                asyncio.ensure_future(mq.poll("orders", "workers", 1, wait=600)),
            ]
            await mq.topics()
            assert await broker.end(signal.SIGTERM, seconds=15) == 0
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.slow
async def test_a_client_of_two_brokers_goes_on_with_the_second(serve: Serve) -> None:
    first = await serve(directory="first").start()
    second = await serve(directory="second").start()
    both = f"{first.url},{second.url.removeprefix('flint://')}"
    async with flintmq.connect(both) as mq:
        await mq.publish("orders", b"for the first")
        ending = asyncio.ensure_future(first.end(signal.SIGTERM))
        count = 0
        while not ending.done():
            await mq.publish("orders", b"%d" % count)
            count += 1
        assert await ending == 0
        for _ in range(3):
            await mq.publish("orders", b"%d" % count)
            count += 1
    async with flintmq.connect(second.url) as mq, mq.reader("orders") as reader:
        got: list[int] = []
        while rows := await reader.read_batch(1000, timeout=0):
            got += map(int, rows.values)
    assert len(got) >= 3, "the second was never used"
    assert got == list(range(count - len(got), count))


# --- starting


@pytest.mark.slow
async def test_a_broker_is_ready_once_everything_is_recovered(serve: Serve, tmp_path: Path) -> None:
    port = free_port()
    broker = await serve("--fsync", "never", listen=f"127.0.0.1:{port}").start()
    async with flintmq.connect(broker.url) as mq:
        for _ in range(100):
            await mq.publish_batch("orders", [bytes(100)] * 2000)
            await asyncio.gather(*(mq.publish(f"topic{n}", b"x") for n in range(100)))
    broker.process.kill()
    await broker.wait()

    await broker.launch()
    ready = asyncio.ensure_future(broker.wait_ready())
    refused = 0
    while not ready.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            refused += 1
            await asyncio.sleep(0.002)
        else:
            writer.transport.abort()
            await asyncio.wait_for(ready, 60)  # the line is on its way
    await ready
    assert refused
    async with flintmq.connect(broker.url) as mq:
        assert (await mq.topic_stats("orders")).message_count == 200_000
        assert len(await mq.topics()) == 101
    assert await broker.end(signal.SIGTERM) == 0


async def test_a_broker_that_is_told_to_stop_while_it_recovers_is_never_ready(
    serve: Serve, tmp_path: Path
) -> None:
    broker = serve()
    was_told = tmp_path / "told"
    script = broker._command[2:]
    slow = (
        "import asyncio, os, sys\n"
        "from flintmq.engine.broker import Broker\n"
        "whole = Broker.open\n"
        "async def open(self):\n"
        "    os.write(2, b'recovering\\n')  # whole: the log's thread writes there, too\n"
        f"    while not os.path.exists({str(was_told)!r}):\n"
        "        await asyncio.sleep(0.01)\n"
        "    await asyncio.sleep(0.01)\n"
        "    await whole(self)\n"
        "Broker.open = open\n"
        "from flintmq.cli.root import run\n"
        f"sys.exit(run({script[1:]!r}))\n"
    )
    broker._command = [sys.executable, "-c", slow]
    await broker.launch()
    assert broker.process.stderr is not None
    while (line := await broker.process.stderr.readline()) != b"recovering\n":
        assert b'"event": "starting"' in line
    broker.process.send_signal(signal.SIGTERM)
    was_told.touch()
    assert await broker.wait() == 0
    assert broker.process.stdout is not None
    assert await broker.process.stdout.read() == b""


# --- wrong use: one clear line, an exit code, no traceback


def fails(*arguments: object, code: int, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flintmq.cli", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    *before, line = (
        line for line in done.stderr.strip().splitlines() if '"level": "info"' not in line
    )
    # For people; and once for the log, where it was opened already.
    told = [one for one in before if "flintmq: warning: " not in one]
    assert [json.loads(one)["event"] for one in told] in ([], ["not_started"])
    return line


async def test_a_port_in_use_is_one_line(serve: Serve, tmp_path: Path) -> None:
    broker = await serve().start()
    host, port = broker.address

    line = await asyncio.to_thread(
        fails, "--data-dir", tmp_path / "other", "--listen", f"{host}:{port}", code=1
    )
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


async def test_a_directory_in_use_is_one_line_with_the_process(
    serve: Serve, tmp_path: Path
) -> None:
    broker = await serve().start()

    line = await asyncio.to_thread(
        fails, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", code=1
    )
    assert str(broker.process.pid) in line
    assert str(tmp_path / "data") in line


@pytest.mark.slow
def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    data = ("--data-dir", tmp_path / "data")
    assert "--no-such" in fails(*data, "--no-such", code=2)
    assert "--max-connections" in fails(*data, "--max-connections", "0", code=2)
    wrong = {"FLINTMQ_IDLE_TIMEOUT": "soon"}
    assert "FLINTMQ_IDLE_TIMEOUT" in fails(*data, code=2, environment=wrong)
    assert "is a file" in fails("--data-dir", file, code=2)
    assert "always" in fails(*data, "--fsync", "perhaps", code=2)
    assert "HOST:PORT" in fails(*data, "--listen", "here:there", code=2)
    nowhere = ("--listen", "no-such-host.invalid:1")
    assert "--insecure" in fails(*data, *nowhere, code=2)
    assert "no-such-host" in fails(*data, *nowhere, "--insecure", code=1)
    assert "/proc" in fails("--data-dir", "/proc/nothing/here", code=1)


async def test_an_address_others_can_reach_is_refused_or_warned_of(serve: Serve) -> None:
    refused = serve(listen="0.0.0.0:0")
    await refused.launch()
    assert await refused.wait() == 2
    assert "--insecure" in await refused.said()
    broker = await serve("--insecure", listen="0.0.0.0:0").start()
    assert await broker.end(signal.SIGTERM) == 0
    assert "can be reached from other machines" in await broker.said()


@pytest.mark.slow
async def test_limits_come_from_options_and_from_the_environment(serve: Serve) -> None:
    broker = serve("--max-connections", "2", "--idle-timeout", "1")
    await broker.start({"FLINTMQ_MAX_FRAME_BYTES": "100000"})
    async with flintmq.connect(broker.url) as mq, flintmq.connect(broker.url):
        with pytest.raises(flintmq.MessageTooLarge, match="100,000"):
            await mq.publish("orders", bytes(200_000))
        with pytest.raises(flintmq.Disconnected, match="connection table is full"):
            await flintmq.connect(broker.url)
        assert mq._broker.link._ping_seconds == 0.4  # type: ignore[attr-defined]
    async with raw(broker.address) as silent:
        await silent.open()
        await silent.wait_closed()


def _without(module: str, *arguments: str) -> list[str]:
    script = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from flintmq.cli import main\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        "main()\n"
    )
    return [sys.executable, "-c", script]


async def test_without_uvloop_it_works_all_the_same(serve: Serve) -> None:
    broker = serve()
    broker._command = _without("uvloop", *broker._command[3:])
    await broker.start()
    async with flintmq.connect(broker.url) as mq:
        assert (await mq.publish("orders", b"x")).durability == "synced"
    assert await broker.end(signal.SIGTERM) == 0
    assert await broker.complaints() == []


def test_without_click_the_missing_extra_is_named() -> None:
    done = subprocess.run(_without("click", "serve"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr.strip() == f"flintmq: the command line needs extra packages: {remedy('server')}"
    )


# --- what it costs


@pytest.mark.slow
async def test_more_connections_than_files_do_not_stop_a_broker(serve: Serve) -> None:
    broker = serve()
    broker._command = ["/bin/sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *broker._command]
    await broker.start()
    async with flintmq.connect(broker.url) as mq:
        many = []
        for _ in range(200):
            many.append(await asyncio.open_connection(*broker.address))
        assert (await asyncio.wait_for(mq.publish("orders", b"x"), 60)).offset == 0
        with pytest.raises(flintmq.Disconnected):
            await flintmq.connect(broker.url)
        for _, writer in many:
            writer.transport.abort()
    async with flintmq.connect(broker.url, timeout=20) as mq:
        assert (await mq.publish("orders", b"y")).offset == 1
    assert await broker.end(signal.SIGTERM) == 0
    assert "this process can open 100 files" in await broker.said()


@pytest.mark.slow
async def test_an_idle_broker_with_a_thousand_parked_subscribers_sleeps(serve: Serve) -> None:
    broker = await serve().start()
    clients = [await flintmq.connect(broker.url) for _ in range(50)]
    await clients[0].create_topic("orders")
    parked: list[asyncio.Future[object]] = []
    open_ends = []
    for mq in clients:
        for n in range(20):
            if n % 2:
                reader = await mq.reader("orders", start="latest")
                open_ends.append(reader)
                parked.append(asyncio.ensure_future(reader.read()))
            else:
                deliveries = await mq.subscribe("orders", f"group{n}")
                open_ends.append(deliveries)  # type: ignore[arg-type]
                parked.append(asyncio.ensure_future(deliveries.read()))
    seconds: list[int] = []
    while len(seconds) < 3 or sum(seconds[-3:]) >= 10 * 3:  # it takes a while on a busy machine
        assert len(seconds) < 20, f"wake-ups in each second: {seconds}"
        before = broker.wake_ups()
        await asyncio.sleep(1)
        seconds.append(broker.wake_ups() - before)
    assert not any(task.done() for task in parked), "they are parked, not failed"
    await clients[0].publish("orders", b"x")
    await asyncio.wait_for(asyncio.gather(*parked[1::2]), 60)
    for task in parked:
        task.cancel()
    await asyncio.gather(*parked, return_exceptions=True)
    for mq in clients:
        await mq.close()
    assert await broker.end(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_a_hundred_thousand_half_open_requests_leave_the_broker_as_it_is(
    serve: Serve,
) -> None:
    broker = await serve().start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish_batch("orders", [bytes(1000)] * 2000)
        async with raw(broker.address) as hostile:
            await hostile.open()
            for id in range(1, 101):
                hostile.ask(Op.OPEN_READER, id, ["orders", None, "latest"])
                await hostile.answer(id)
            hostile.ask(Op.JOIN_GROUP, 101, ["waits", "workers"])
            stream = (await hostile.answer(101))[1][0]
            start = broker.memory_bytes()
            hostile._reader._transport.pause_reading()  # type: ignore[attr-defined]

            async def flood() -> None:
                for id in range(200, 100_200):
                    kind = id % 4
                    if kind == 0:
                        hostile.ask(Op.FETCH, id, ["orders", 2000, 10, None])
                    elif kind == 1:
                        hostile.ask(Op.TAKE, id, [id % 100 + 1, 10, None])
                    elif kind == 2:
                        hostile.ask(Op.TAKE_LEASED, id, [stream, 10, 30.0, None])
                    else:
                        hostile.ask(Op.FETCH, id, ["orders", 0, 2000, None])
                    if id % 100 == 0:
                        await asyncio.sleep(0)

            flooding = asyncio.ensure_future(flood())
            offsets = [(await mq.publish("other", b"x")).offset for _ in range(200)]
            await flooding
            await asyncio.sleep(1)
            grown = broker.memory_bytes() - start
            assert offsets == list(range(200)), "others are served meanwhile"
            assert grown < 100 * 1024 * 1024, f"{grown / 1024**2:.0f} MiB"
        assert (await mq.publish("other", b"x")).offset == 200
    assert await broker.end(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_a_consumer_that_does_not_read_costs_the_broker_nothing(serve: Serve) -> None:
    broker = await serve("--fsync", "never").start()
    async with flintmq.connect(broker.url) as mq:
        await mq.create_topic("orders", storage="memory", retention_bytes=4 * 1024 * 1024)
        async with raw(broker.address) as slow:
            await slow.open()
            slow.ask(Op.OPEN_FEED, 1, ["orders", 1000, "drop_oldest"])
            stream = (await slow.answer(1))[1][0]
            slow.ask(Op.OPEN_READER, 2, ["orders", None, "earliest"])
            reader = (await slow.answer(2))[1][0]
            slow._reader._transport.pause_reading()  # type: ignore[attr-defined]
            for id in range(10, 110):
                slow.ask(Op.TAKE, id, [stream if id % 2 else reader, 1000, None])
            for _ in range(20):
                await mq.publish_batch("orders", [bytes(1000)] * 1000)
            start = broker.memory_bytes()
            for _ in range(150):
                await mq.publish_batch("orders", [bytes(1000)] * 1000)
            grown = broker.memory_bytes() - start
            assert grown < 50 * 1024 * 1024, f"{grown / 1024**2:.0f} MiB for 150 MB published"
    assert await broker.end(signal.SIGTERM) == 0


async def test_a_broker_that_was_started_with_sigint_ignored_keeps_to_that(tmp_path: Path) -> None:
    """As shells start what runs in the background: Ctrl-C in their terminal is not for it."""
    broker = Served(tmp_path / "data")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        await broker.start()
    finally:
        signal.signal(signal.SIGINT, before)
    broker.process.send_signal(signal.SIGINT)
    async with flintmq.connect(broker.url) as mq:
        await mq.publish("orders", b"1")
    assert await broker.end(signal.SIGTERM) == 0

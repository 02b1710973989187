"""`copy`: what a topic has is in another topic, at another broker, in a file; and comes back."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.cli.copy import Bookmark, CopyJob, CopySender, _parcels
from flintmq.cli.copy_files import copied, read_file
from flintmq.cli.look import ProgressBar
from flintmq.rows import Message
from tests.serving import serving

from .conftest import Shell


def facts(server: str, topic: str) -> list[tuple[Any, ...]]:
    """All that is said of the messages of a topic, but where they lie and since when."""
    with flintmq.connect_sync(server) as mq, mq.reader(topic) as reader:
        found: list[Message] = list(reader.read_batch(10_000, timeout=0))
        return [
            (m.value, m.key, m.headers, m.priority, m.content_type, m.expires_at, m.deliver_at)
            for m in found
        ]


@pytest.fixture
def orders(server: str) -> list[tuple[Any, ...]]:
    """Messages of every kind: with keys, headers, priority, expiry, delay; bytes and JSON."""
    with flintmq.connect_sync(server) as mq:
        mq.publish_batch("orders", [b"plain %d" % number for number in range(1500)])
        mq.publish("orders", {"id": 1}, key="k", headers={"region": "eu"}, priority=3, ttl=9000)
        mq.publish("orders", b"\xff\x00", key=b"\xfe", headers={"raw": b"\xfd"}, delay=9000)
    return facts(server, "orders")


def told(shell: Shell, *arguments: str, stdin: bytes = b"") -> Any:
    code, out, err = shell(*arguments, "--output", "json", stdin=stdin)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("file", ["orders.jsonl", "orders.batches"])
def test_a_topic_comes_back_from_a_file(
    shell: Shell, server: str, orders: list[Any], file: str, tmp_path: Path
) -> None:
    path = str(tmp_path / file)
    assert told(shell, "copy", "orders", path)["count"] == 1502
    assert told(shell, "copy", path, "again")["count"] == 1502
    assert facts(server, "again") == orders


def test_a_topic_is_copied_to_another_and_to_another_broker(
    shell: Shell, server: str, orders: list[Any], tmp_path: Path
) -> None:
    there = f"file://{tmp_path}/there"
    shell("copy", "orders", "orders.copy")
    shell("copy", "orders", "orders", "--to-server", there)
    assert facts(server, "orders.copy") == orders
    assert facts(there, "orders") == orders


def test_a_copy_that_is_resumed_doubles_nothing(
    shell: Shell, server: str, orders: list[Any]
) -> None:
    assert told(shell, "copy", "orders", "b", "--resume", "--count", "700")["count"] == 700
    assert told(shell, "copy", "orders", "b", "--resume")["count"] == 802
    shell("pub", "orders", "new")
    assert told(shell, "copy", "orders", "b", "--resume")["count"] == 1
    assert [fact[0] for fact in facts(server, "b")] == [*(fact[0] for fact in orders), b"new"]


async def test_what_was_sent_and_not_committed_is_found_to_be_there() -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.publish_batch("orders", [b"%d" % number for number in range(100)])
        identity = (await mq.topic_info("orders")).id

        async def copy(count: int) -> CopyJob:
            """Ends before anything is committed, as a killed process does."""
            job = CopyJob("orders", "copy", None, None, None, False, "copy.copy", 0)
            sending = CopySender(mq, job, ProgressBar("copied"), None)
            async with mq.reader("orders") as reader:
                rows = await reader.read_batch(count)
                for parcel in _parcels(rows, job, None, identity):
                    await sending.send(parcel)
            await sending.finish()
            return job

        await copy(37)
        again = await copy(100)
        assert (again.copied, again.repeated) == (63, 37)
        async with mq.reader("copy") as reader:
            assert (await reader.read_batch(1000)).values == [b"%d" % n for n in range(100)]


async def test_what_was_handed_to_a_copy_that_was_killed_is_copied() -> None:
    job = CopyJob("orders", "copy", None, None, None, False, "copy.copy", 0)
    async with flintmq.connect("memory://") as mq, AsyncExitStack() as stack:
        await mq.publish_batch("orders", [b"%d" % number for number in range(100)])
        first, after = await Bookmark.open(mq, job, "copy.copy", stack)
        assert after == {0: 0}
        await first.move(0, 20)
        async with mq.reader("orders", name="copy.copy") as not_gone_yet:
            await not_gone_yet.read_batch(70)
            _, after = await Bookmark.open(mq, job, "copy.copy", stack)
        assert after == {0: 20}


def test_a_row_of_partitions_is_resumed_in_each_of_them(shell: Shell, server: str) -> None:
    with flintmq.connect_sync(server) as mq:
        for name in ("a", "b"):
            mq.create_topic(name, partitions=3)
        mq.publish_batch("a", [b"%d" % n for n in range(90)], key=[f"k{n}" for n in range(90)])
    assert told(shell, "copy", "a", "b", "--resume", "--count", "50")["count"] == 50
    assert told(shell, "copy", "a", "b", "--resume")["count"] == 40
    for number in range(3):
        assert facts(server, f"a/{number}") == facts(server, f"b/{number}") != []


@pytest.mark.slow
def test_a_copy_that_is_killed_again_and_again_is_complete_in_the_end(tmp_path: Path) -> None:
    count = 300_000
    with serving(tmp_path / "data") as url, flintmq.connect_sync(url) as mq:
        values = [b"%d" % number for number in range(count)]
        for start in range(0, count, 10_000):
            mq.publish_batch("orders", values[start : start + 10_000])
        mq.create_topic("copy")
        command = [sys.executable, "-m", "flintmq.cli", "copy", "orders", "copy", "--resume"]
        for _ in range(3):
            before = mq.topic_stats("copy").next_offset
            with subprocess.Popen(
                [*command, "--server", url], stderr=subprocess.DEVNULL
            ) as process:
                while process.poll() is None and mq.topic_stats("copy").next_offset == before:
                    time.sleep(0.01)
                process.kill()
        done = subprocess.run([*command, "--server", url], stderr=subprocess.DEVNULL, timeout=200)
        assert done.returncode == 0
        with mq.reader("copy") as reader:
            found: list[bytes] = []
            while rows := reader.read_batch(50_000, timeout=0):
                found += rows.values
        assert found == values


@pytest.mark.parametrize("file", ["orders.jsonl", "orders.batches"])
def test_a_file_that_was_cut_short_is_gone_on_with(
    shell: Shell, server: str, orders: list[Any], file: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    shell("copy", "orders", str(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    code, _, err = shell("copy", "orders", str(path))
    assert (code, "--resume" in err) == (1, True)
    shell("copy", "orders", str(path), "--resume")
    shell("copy", str(path), "again")
    assert facts(server, "again") == orders


def test_partitions_are_kept_where_both_have_as_many(shell: Shell, server: str) -> None:
    with flintmq.connect_sync(server) as mq:
        for name in ("a", "b"):
            mq.create_topic(name, partitions=3)
        mq.publish_batch("a", [b"%d" % n for n in range(90)], key=[f"k{n}" for n in range(90)])
    assert told(shell, "copy", "a", "b")["count"] == 90
    assert [facts(server, f"a/{n}") for n in range(3)] == [
        facts(server, f"b/{n}") for n in range(3)
    ]


def test_lines_go_through_a_pipe_and_some_can_be_left_out(shell: Shell, server: str) -> None:
    shell("pub", "orders", "--count", "5", "{{n}}")
    lines = shell("copy", "orders", "-", "--filter", "offset >= 1")[1]
    assert told(shell, "copy", "-", "b", "--skip", "2", "--count", "1", stdin=lines)["count"] == 1
    assert [fact[0] for fact in facts(server, "b")] == [b"4"]


def test_what_was_published_during_a_copy_is_left_for_the_next_one(server: str) -> None:
    async def story() -> None:
        async with flintmq.connect("memory://") as mq:
            from flintmq.cli.copy import Ends

            await mq.publish_batch("a", [b"1", b"2"])
            ends = Ends(await mq.topic_stats("a"), follow=False)
            await mq.publish_batch("a", [b"3"])
            async with mq.reader("a") as reader:
                assert ends.within(await reader.read_batch(10)).values == [b"1", b"2"]
            assert ends.reached()

    asyncio.run(story())


@pytest.mark.slow
def test_ctrl_c_tells_what_was_copied_and_how_to_go_on(server: str, tmp_path: Path) -> None:
    with flintmq.connect_sync(server) as mq:
        mq.publish_batch("orders", [b"1", b"2", b"3"])
    path = tmp_path / "orders.jsonl"
    command = [sys.executable, "-m", "flintmq.cli", "copy", "orders", str(path), "--follow"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            path.exists() and path.read_bytes().count(b"\n") == 3
        ):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "3 messages" in err
    assert "continue with --resume" in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["a.jsonl", "b.jsonl"], 2, "one of the two must be a topic"),
        (["orders", "orders"], 2, "copied to itself"),
        (["a.jsonl", "b", "--resume"], 2, "use --skip"),
        (["missing.batches", "b"], 1, "No such file"),
        (["orders", "-", "--resume"], 2, "a topic or a file"),
        (["nothing", "b"], 1, "'nothing' does not exist"),
    ],
)
def test_what_cannot_be_copied_is_told_in_one_line(
    shell: Shell, arguments: list[str], code: int, text: str
) -> None:
    ended, _, err = shell("copy", *arguments)
    assert ended == code
    assert text in err
    assert "Traceback" not in err


def test_a_damaged_file_says_where(shell: Shell, orders: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "a.batches"
    shell("copy", "orders", str(path))
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    code, _, err = shell("copy", str(path), "b")
    assert code == 1
    assert "a.batches, byte" in err


def test_what_has_expired_is_left_out_of_a_file(tmp_path: Path) -> None:
    rows = BatchBuilder()
    rows.append_row(b"dead", expiry=5)
    rows.append_row(b"alive", expiry=50)
    path = tmp_path / "a.batches"
    path.write_bytes(rows.seal().encode())
    assert [lot.rows.values() for lot in read_file(str(path), now_ms=10)] == [[b"alive"]]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "value": st.binary(max_size=9),
                "key": st.none() | st.text(max_size=5) | st.binary(max_size=5),
                "headers": st.dictionaries(st.text(max_size=4), st.binary(max_size=4)),
                "priority": st.integers(0, 7),
                "expiry": st.just(0) | st.integers(1, 2**40),
                "content_type": st.none() | st.just("text/plain"),
            }
        ),
        min_size=1,
        max_size=6,
    )
)
def test_rows_are_copied_with_all_that_is_said_of_them(messages: list[dict[str, Any]]) -> None:
    rows = BatchBuilder()
    for message in messages:
        rows.append_row(**message)
    first = rows.seal()
    second = copied(first, range(first.row_count)).seal()
    assert second.encode() == first.encode()

"""`top`: what is busiest and furthest behind comes first, within the terminal's size."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

import flintmq
from flintmq.cli.top import look
from flintmq.cli.top_screen import TopSnapshot, screen, topic_lines

from .conftest import Shell


def drawn(
    now: TopSnapshot, before: TopSnapshot | None, *, width: int, height: int | None, note: str = ""
) -> list[str]:
    """The lines of a screen of that size."""
    out = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    with out.capture() as printed:
        out.print(screen("flint://127.0.0.1:7600", now, before, height=height, note=note))
    return [line.rstrip() for line in printed.get().splitlines()]


async def watched(topics: int = 3) -> tuple[TopSnapshot, TopSnapshot]:
    """A broker before and after some work, two seconds apart."""
    async with flintmq.connect("memory://") as mq:
        for number in range(topics):
            await mq.publish(f"topic.{number}", b"x")
        await mq.poll("topic.1", "billing", max=1, ack="auto")
        first = await look(mq, ">")
        await mq.publish_batch("topic.1", [b"x" * 100] * 5000)
        await mq.poll("topic.1", "billing", max=1000, ack="auto")
        await mq.poll("topic.1", "billing", max=7)
        second = await look(mq, ">")
    at = TopSnapshot(first.at + 2.0, second.topics, second.groups, second.topic_count)
    return first, at


async def test_rates_are_between_two_looks_and_the_busiest_comes_first() -> None:
    first, second = await watched()
    lines = topic_lines(second, first)
    assert [line.name for line in lines] == ["topic.1", "topic.0", "topic.2"]
    assert lines[0].in_rate == 2500


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 12)])
async def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    first, second = await watched(topics=40)
    lines = drawn(second, first, width=width, height=height, note="q to quit")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert re.search(r"topic\.1 +5,001 .* 2,500 ", text)
    assert re.search(r"topic\.1 +billing +4,000 +7 +0 +0 +500 ", text)
    assert re.search(r"and \d+ more topics", text)
    assert "q to quit" in lines[:4]


async def test_of_very_many_topics_the_busiest_are_always_looked_at_and_the_others_in_turn() -> (
    None
):
    async with flintmq.connect("memory://") as mq:
        for number in range(30):
            await mq.create_topic(f"topic.{number:02}")
        await mq.publish_batch("topic.29", [b"x"] * 1000)
        now, looked = None, set()
        for _ in range(4):
            now = await look(mq, ">", now, most=10)
            looked |= {one.name for one in now.topics if one.name not in now.seen_at}
            assert len(now.topics) - len(now.seen_at) == 10
        assert now is not None
        assert len(looked) == 30
        await mq.publish_batch("topic.29", [b"x"] * 500)
        await mq.delete_topic("topic.03")
        then = await look(mq, ">", now, most=10)
        assert "topic.29" not in then.seen_at, "the busiest is never one of the others"
        assert "topic.03" not in {one.name for one in then.topics}
        (busy, *_) = topic_lines(then, now)
        assert busy.name == "topic.29"
        assert busy.in_rate == pytest.approx(500 / (then.at - now.at))
        assert "29 topics" in drawn(then, now, width=80, height=24)[1]
        few = await look(mq, ">", None, most=10)
        assert "10 of 29 topics" in drawn(few, None, width=80, height=24)[1]


async def test_only_topics_with_groups_are_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    groups = flintmq.Client.groups

    async def noted(mq: flintmq.Client, topic: str) -> list[flintmq.GroupInfo]:
        asked.append(topic)
        return await groups(mq, topic)

    monkeypatch.setattr(flintmq.Client, "groups", noted)
    monkeypatch.setattr(flintmq.Client, "topic_stats", None)
    async with flintmq.connect("memory://") as mq:
        for number in range(30):
            await mq.create_topic(f"topic.{number:02}")
        await mq.poll("topic.05", "workers")
        async with mq.reader("topic.11", name="audit"):
            pass

        found = await look(mq, ">")

    assert len(found.topics) == 30
    assert {one.name for one in found.groups} == {"workers", "audit"}
    assert sorted(asked) == ["topic.05", "topic.11"]


async def test_a_name_that_is_too_long_goes_on_in_the_next_line() -> None:
    name = "a.topic.with.a.long.name." * 5
    async with flintmq.connect("memory://") as mq:
        await mq.publish(name + "end", b"x")
        found = await look(mq, ">")
    lines = drawn(found, None, width=60, height=None)
    assert max(map(len, lines)) <= 60
    assert "".join(line.split()[0] for line in lines[4:] if line.strip()).startswith(name + "end")


def test_one_look_is_printed_for_scripts(shell: Shell) -> None:
    shell("pub", "orders", "--count", "3", "x")
    shell("sub", "orders", "--group", "billing", "--count", "1")
    code, out, _ = shell("top", "--once")
    assert code == 0
    assert b"\x1b" not in out
    assert max(map(len, out.decode().splitlines()[1:])) <= 80
    facts = json.loads(shell("top", "--once", "--output", "json")[1])
    assert [(one["name"], one["message_count"]) for one in facts["topics"]] == [("orders", 3)]
    assert [(one["name"], one["lag"]) for one in facts["groups"]] == [("billing", 2)]


def test_in_a_pipe_a_long_name_stays_in_one_line_below_its_heading(shell: Shell) -> None:
    name = "a.topic.with.a.long.name." * 5 + "end"
    shell("pub", name, "--count", "3", "x")
    shell("sub", name, "--group", "billing", "--count", "1")
    lines = shell("top", "--once")[1].decode().splitlines()
    headings = next(line for line in lines if "GROUP" in line)
    assert headings.split("  ")[0] == "TOPIC"
    assert [line.split()[:3] for line in lines[-1:]] == [[name, "billing", "2"]]
    assert headings.index("GROUP") == lines[-1].index("billing")


def test_without_a_terminal_it_says_once(shell: Shell) -> None:
    code, _, err = shell("top")
    assert (code, "--once" in err) == (2, True)


@pytest.mark.slow
def test_in_a_terminal_it_draws_until_q_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    with flintmq.connect_sync(f"file://{tmp_path}/data") as mq:
        mq.publish("orders", b"x")
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "flintmq.cli", "top", "--server", f"file://{tmp_path}/data"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        seen = b""
        deadline = time.monotonic() + 60
        while b"q to quit" not in seen and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65536)
        os.write(ours, b"q")
        assert process.wait(60) == 0
    while select.select([ours], [], [], 0.2)[0]:
        seen += os.read(ours, 65536)
    assert b"orders" in seen
    assert b"\x1b[?1049h" in seen
    assert seen.rindex(b"\x1b[?1049l") > seen.rindex(b"orders")
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"orders")
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)

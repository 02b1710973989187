"""The profiler: who uses the CPU is seen, who waits is not, and the file can be looked at."""

from __future__ import annotations

import signal
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from flintmq.daemon.profiling import Profiler, Stacks, flame_graph
from flintmq.daemon.profiling.flame_graph import shortened
from flintmq.daemon.profiling.sampler import cpu_of_thread
from flintmq.daemon.profiling.stacks import DEPTH_MAX, REST

SVG = "{http://www.w3.org/2000/svg}"


def test_stacks_are_bounded_in_number_and_depth() -> None:
    stacks = Stacks(stacks_max=10)
    for number in range(1000):
        stacks.add(("main", f"f{number}"), 1)
    stacks.add(("main", *["f"] * 10_000), 1)

    assert len(stacks) == 11
    assert stacks.total == 1001
    assert dict(stacks.items())["main", REST] == 991
    assert max(len(stack) for stack, _ in stacks.items()) <= DEPTH_MAX


def test_folded_text_is_what_other_tools_read() -> None:
    stacks = Stacks()
    stacks.add(("main", "b"), 2)
    stacks.add(("main", "a;x"), 1)
    stacks.add(("main", "b"), 3)

    assert stacks.folded() == "main;a,x 1\nmain;b 5\n"


def test_a_frame_is_as_wide_as_its_part_and_says_so() -> None:
    stacks = Stacks()
    stacks.add(("main", "flintmq.<lambda>"), 750_000)
    stacks.add(("main", "other"), 250_000)

    picture = ET.fromstring(flame_graph(stacks, "A & B", ["a <note>"]))

    frames = {
        title.text.split("\n")[0]: (float(rect.get("width", 0)), title.text)
        for group in picture.iter(f"{SVG}g")
        if (title := group.find(f"{SVG}title")) is not None
        and title.text is not None
        and (rect := group.find(f"{SVG}rect")) is not None
    }
    assert frames["flintmq.<lambda>"][0] == pytest.approx(3 * frames["other"][0])
    assert frames["all"][0] == frames["main"][0]
    assert frames["other"][1].endswith("250 ms, 25.00%")
    assert [text.text for text in picture.iter(f"{SVG}text")][:2] == ["A & B", "a <note>"]


def test_where_a_name_is_too_long_its_end_is_shown() -> None:
    name = "flintmq.engine.topic.Topic.publish"
    assert shortened(name, 34) == name
    assert shortened(name, 20) == "topic.Topic.publish"
    assert shortened(name, 10) == "publish"
    assert shortened(name, 4) == "pub…"


def test_an_empty_profile_is_a_picture_too() -> None:
    ET.fromstring(flame_graph(Stacks(), "nothing"))


def test_names_with_odd_characters_do_no_harm() -> None:
    stacks = Stacks()
    stacks.add(("main", "<script>\x00\x1b\"'"), 1)

    assert "<script>" not in flame_graph(stacks, "t")
    ET.fromstring(flame_graph(stacks, "t"))


def busy_until(ends: threading.Event) -> None:
    while not ends.is_set():
        sum(range(1000))


def test_who_works_is_seen_and_who_waits_is_not(tmp_path: Path) -> None:
    ends = threading.Event()
    working = threading.Thread(target=busy_until, args=(ends,), name="worker")
    resting = threading.Thread(target=ends.wait, name="rester")
    profiler = Profiler(tmp_path / "profile.txt")
    working.start()
    resting.start()
    try:
        profiler.sample()
        id = working.native_id
        assert id is not None
        began = cpu_of_thread(id)
        assert began is not None
        while (cpu_of_thread(id) or 0) < began + 20_000_000:
            time.sleep(0.001)
        profiler.sample()
    finally:
        ends.set()
        working.join()
        resting.join()
    profiler.write()

    text = profiler.path.read_text()
    assert "test_profiling.busy_until" in text
    weights = {
        name: sum(weight for stack, weight in profiler.stacks.items() if stack[0] == name)
        for name in ("thread worker", "thread rester")
    }
    assert weights["thread worker"] >= 20_000
    assert weights["thread rester"] < weights["thread worker"] / 4
    assert [path.name for path in tmp_path.iterdir()] == ["profile.txt"]


def test_a_thread_that_is_gone_has_no_clock() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.native_id is not None

    while cpu_of_thread(thread.native_id) is not None:  # the kernel's part of it ends a bit later
        time.sleep(0.001)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main one's"
)
def test_short_bursts_of_work_between_waits_are_seen_where_they_work(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path / "profile.svg", hertz=1000)
    handler = signal.getsignal(signal.SIGPROF)
    profiler.start()
    while profiler.samples < 6:
        sum(range(5_000))
        time.sleep(0.0001)
    profiler.stop()

    ET.parse(profiler.path)
    assert "samples" in profiler.path.read_text()
    assert "test_short_bursts_of_work" in profiler.stacks.folded()
    assert 0 <= profiler.overhead < 1
    assert signal.getsignal(signal.SIGPROF) is handler
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_beside_the_main_thread_it_looks_from_a_thread_of_its_own(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path / "profile.txt", hertz=1000)
    interval = sys.getswitchinterval()

    def profile() -> None:
        profiler.start()
        while profiler.samples < 5:
            time.sleep(0.001)
        profiler.stop()

    thread = threading.Thread(target=profile)
    thread.start()
    thread.join()

    assert profiler.path.exists()
    assert sys.getswitchinterval() == interval

"""`bench`: every workload ends, counts what it did, and says what did not come."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq.cli import bench_chart, bench_workloads
from flintmq.cli.bench_workloads import BenchPlan, BenchRun
from flintmq.cli.latencies import Latencies

from .conftest import Shell


def told(shell: Shell, *arguments: str) -> Any:
    code, out, err = shell("bench", *arguments, "--output", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("workload", ["pub", "sub", "pubsub", "queue"])
@pytest.mark.parametrize("batch", ["1", "7"])
def test_what_is_published_is_received_and_counted(shell: Shell, workload: str, batch: str) -> None:
    facts = told(
        shell, workload, "--in-process", "--messages", "100", "--batch", batch,
        "--publishers", "3", "--subscribers", "2", "--topics", "2", "--in-flight", "5",
    )  # fmt: skip
    assert facts["published"]["count"] == 100
    if workload != "pub":
        assert (facts["received"]["count"], facts["lost"]) == (100, 0)
    if workload in ("pubsub", "queue"):
        times = facts["received"]["microseconds"]
        assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["p99.9"] <= times["max"]
        assert sum(count for _, count in facts["histogram_microseconds"]["delivery"]) == 100


def test_every_subscriber_of_a_topic_gets_everything_live(shell: Shell) -> None:
    facts = told(
        shell, "pubsub", "--in-process", "--messages", "50", "--qos", "0", "--subscribers", "3"
    )
    assert (facts["received"]["count"], facts["durability"]) == (150, "none")


def test_a_broker_is_measured_and_its_topics_are_gone_afterwards(shell: Shell) -> None:
    facts = told(shell, "latency", "--messages", "3")
    assert (facts["received"]["count"], facts["durability"]) == (3, "synced")
    assert json.loads(shell("topic", "ls", "--output", "json")[1]) == []


def test_a_run_may_have_a_time_in_place_of_a_number(shell: Shell) -> None:
    facts = told(shell, "pub", "--in-process", "--duration", "20ms", "--in-flight", "1")
    assert facts["published"]["count"] > 0


def test_the_disk_of_a_broker_in_this_process_is_chosen(shell: Shell) -> None:
    arguments = ["pub", "--in-process", "--messages", "5", "--durability"]
    assert told(shell, *arguments, "always")["durability"] == "synced"
    assert told(shell, *arguments, "never")["durability"] == "written"


async def test_what_never_comes_is_counted_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_workloads, "PATIENCE", 0.01)
    plan = BenchPlan("pubsub", 1, 1, ["t"], 10, 8, 1, 1, 1, None)
    run = BenchRun(plan, lambda done: None)
    async with flintmq.connect("memory://") as mq:
        await mq.create_topic("t")
        await run.publish([mq])

        async def nothing() -> int:
            await mq.topics()
            return 0

        await run.receive("t", nothing, lambda: 0)
    assert run.lost == 10


def test_it_is_told_to_people_with_a_histogram_and_a_picture(shell: Shell, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    code, out, _ = shell(
        "bench", "pubsub", "--in-process", "--messages", "200", "--chart", str(chart)
    )
    text = out.decode()
    assert code == 0
    assert "p99.9" in text
    assert "####" in text
    assert max(map(len, text.splitlines())) <= 100
    picture = ET.fromstring(chart.read_text())
    words = "".join(picture.itertext())
    assert "published 200" in words
    assert "delivery: p50" in words
    assert len(picture.findall("{*}rect")) > 2


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["pub", "sub", "pubsub", "queue"])
def test_publishers_and_subscribers_may_be_spread_over_processes(
    shell: Shell, remote: str, workload: str
) -> None:
    facts = told(
        shell, workload, "--server", remote, "--processes", "2", "--messages", "101",
        "--publishers", "3", "--subscribers", "3", "--topics", "2", "--batch", "2",
    )  # fmt: skip
    assert (facts["processes"], facts["published"]["count"]) == (2, 101)
    if workload != "pub":
        # Publishers 0 and 2 and subscribers 0 and 2 are on the first topic.
        both = 101 if workload == "queue" else 2 * 67 + 34
        assert (facts["received"]["count"], facts["lost"]) == (both, 0)
    if workload in ("pubsub", "queue"):
        assert facts["received"]["microseconds"]["p50"] > 0
    assert json.loads(shell("topic", "ls", "--server", remote, "--output", "json")[1]) == []


def test_the_shares_of_processes_are_all_there_is() -> None:
    for publishers, processes in ((1, 3), (3, 2), (5, 5), (7, 3)):
        plan = BenchPlan("queue", publishers, 4, ["a", "b"], 100, 8, 1, 1, 1, None)
        shares = [plan.share(number, processes) for number in range(processes)]
        assert sum(share.messages for share in shares) == 100
        assert sum(share.publishers for share in shares) == publishers
        assert sum(share.subscribers for share in shares) == 4
        assert all(share.messages == 0 for share in shares if not share.publishers)
        topics = [share.topic_of(n) for share in shares for n in range(share.publishers)]
        assert sorted(topics) == sorted(plan.topic_of(n) for n in range(publishers))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["queue", "--qos", "0"], "reads stored messages"),
        (["latency", "--msg-size", "4"], "each message carries a timestamp"),
        (["pub", "--durability", "never"], "a running broker decides by its own --fsync"),
        (["pub", "--chart", "a.gif"], ".svg or .png"),
    ],
)
def test_what_cannot_be_measured_is_told(shell: Shell, arguments: list[str], text: str) -> None:
    code, _, err = shell("bench", *arguments)
    assert code == 2
    assert text in err


def test_a_png_without_its_library_is_told_before_anything_is_measured(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, package: str | None = None) -> Any:
        if name == "cairosvg":
            raise ImportError(name)
        return import_module(name, package)

    monkeypatch.setattr(bench_chart, "import_module", missing)
    code, out, err = shell("bench", "pub", "--in-process", "--chart", "a.png")
    assert (code, out) == (1, b"")
    assert "pip install cairosvg" in err


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_percentile_is_within_one_percent(times: list[int], share: float) -> None:
    found = Latencies()
    for ns in times:
        found.add(ns)
    exact = next(ns for ns in sorted(times) if sum(t <= ns for t in times) >= share * len(times))
    assert abs(found.at(share) - exact) <= exact / 100 + 1
    assert found.max_ns == max(times)
    assert sum(count for _, count in found.histogram()) == len(times)

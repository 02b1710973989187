"""The benchmark beside the peers: what is pure in it, and one small run where the peer is there."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.installing import packages_to_install
from benchmarks.peers import __main__ as command
from benchmarks.peers import driving
from benchmarks.peers.chart import picture
from benchmarks.peers.clusters import cluster_starters, nats_cluster_settings
from benchmarks.peers.driving import Ears, in_flight, on_schedule
from benchmarks.peers.install import install, say_where_erlang_is
from benchmarks.peers.job import Job, Progress, WrongCount, check, latencies
from benchmarks.peers.modes import BARE, CLUSTER_MODES, MODES, PEERS, US
from benchmarks.peers.page import CLUSTER_BEGIN, figures_of, into_page, render
from benchmarks.peers.results import Results, Verdict
from benchmarks.peers.running import cells_of, take_turns
from benchmarks.peers.scenarios import SCENARIOS, Scenario
from benchmarks.peers.servers import (
    mosquitto_settings,
    nats_settings,
    rabbitmq_environment,
    redis_arguments,
    starters,
)

FACTS = {
    "cores": 2,
    "python": "CPython 3.11",
    "system": "Linux",
    "load_average_at_start": [0.1],
    "rounds": 3,
    "seconds": 0.8,
    "versions": {"nats": "2.15.1"},
}


def scenario(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


def results_of(**rates: float) -> Results:
    """64 in flight: our await and our send, NATS and Redis, all synced."""
    results = Results(FACTS)
    results.at_rest = {"flintmq-always": 30.0, "nats-fsync": 14.0}
    keys = {
        "calls": ("flintmq:always", "calls"),
        "send": ("flintmq:always", "pipeline"),
        "nats": ("nats:fsync", "calls"),
        "redis": ("redis:always", "pipeline"),
    }
    for name, rate in rates.items():
        mode, shape = keys[name]
        for share in (0.5, 1.0, 2.0):
            results.add("publish-64", mode, shape, {"msgs/s": rate * share, "MiB": 40.0})  # type: ignore[arg-type]
    return results


# --- figures and verdicts


def test_a_figure_is_the_median_of_its_takes_with_the_smallest_and_the_largest() -> None:
    spread = results_of(nats=1000).spread("publish-64", "nats:fsync", "calls", "msgs/s")

    assert spread is not None
    assert (spread.median, spread.min, spread.max) == (1000, 500, 2000)


def test_a_peer_is_compared_with_ours_in_the_shape_it_has_itself() -> None:
    results = results_of(calls=3000, send=8000, nats=1000, redis=4000)

    ratios = {line.mode.key: line.verdict for line in results.lines(scenario("publish-64"))}

    assert ratios["nats:fsync"] == Verdict(3.0, "ahead")
    assert ratios["redis:always"] == Verdict(2.0, "ahead")
    assert ratios["flintmq:always"] is None


def test_where_we_are_behind_the_table_says_so_by_name() -> None:
    text = render(results_of(calls=3000, send=2000, nats=1000, redis=4000))

    assert "**0.50**" in text
    assert "- Publish, 64 in flight: Redis, stream, AOF, `appendfsync always`: 0.50" in text
    assert "**not ahead**" in text


def test_every_row_we_lose_is_listed_even_where_that_is_as_wanted() -> None:
    results = Results(FACTS)
    results.add("latency", "flintmq:always", "calls", {"p50": 400.0, "p99": 500.0})
    results.add("latency", "nats:fsync", "calls", {"p50": 100.0, "p99": 900.0})

    text = render(results)

    assert "Where FlintMQ is slower than a peer:" in text
    assert "- Latency of a stored message: NATS 0.25" in text


def test_where_we_are_ahead_everywhere_it_says_that() -> None:
    text = render(results_of(calls=3000, send=9000, nats=1000, redis=4000))

    assert "as wanted in every line" in text
    assert "not ahead" not in text


@pytest.mark.parametrize(
    ("ratio", "goal", "is_met", "words"),
    [
        (1.0, "ahead", True, "ahead"),
        (0.99, "ahead", False, "**not ahead**"),
        (0.5, "within twice", True, "within twice"),
        (0.49, "within twice", False, "**beyond twice**"),
        (2.0, "within twice", True, "ahead"),
        (0.1, "as it is", True, ""),
    ],
)
def test_a_verdict_says_what_was_wanted_of_it(
    ratio: float, goal: str, is_met: bool, words: str
) -> None:
    verdict = Verdict(ratio, goal)

    assert (verdict.is_met, verdict.words) == (is_met, words)


def test_a_shorter_latency_is_a_ratio_above_one() -> None:
    results = Results(FACTS)
    results.add("latency", "flintmq:always", "calls", {"p50": 100.0, "p99": 500.0})
    results.add("latency", "nats:fsync", "calls", {"p50": 300.0, "p99": 900.0})

    worst = results.worst(scenario("latency"), "nats")

    assert worst is not None
    assert worst.ratio == 3.0


def test_an_open_loop_shows_the_tail_and_the_rate_and_divides_nothing() -> None:
    results = Results(FACTS)
    ours = {"p50": 300.0, "p99": 900.0, "p99.9": 1500.0, "offered": 20_000.0}
    results.add("open-loop", "flintmq:always", "calls", ours)
    results.add("open-loop", "nats:fsync", "calls", {**ours, "p99.9": 1700.0, "offered": 1500.0})

    text = render(results)

    assert "p50 µs | p99 µs | p99.9 µs | msgs/s offered |" in text
    assert "| 300 | 900 | 1,500 | 20,000 |  |  |" in text
    assert "| 300 | 900 | 1,700 | 1,500 |  |  |" in text
    assert results.worst(scenario("open-loop"), "nats") is None


def test_a_live_path_is_compared_whatever_the_durability_of_its_mode() -> None:
    results = Results(FACTS)
    results.add("live-1", "flintmq:always", "calls", {"msgs/s": 400.0})
    results.add("live-1", "redis:default", "pipeline", {"msgs/s": 100.0})

    worst = results.worst(scenario("live-1"), "redis")

    assert worst is not None
    assert worst.ratio == 4.0


def test_a_peer_that_is_missing_is_named_loudly() -> None:
    results = results_of(calls=3000, nats=1000)
    results.missing["rabbitmq"] = "there is no apt-get"

    text = render(results)

    assert "**RabbitMQ is MISSING from this run: there is no apt-get**" in text
    assert "| MISSING |" in text


def test_a_figure_that_failed_shows_its_reason() -> None:
    results = results_of(calls=3000)
    results.add_error("publish-64", "nats:fsync", "calls", "stored: expected 9, found 8")

    assert "failed: stored: expected 9, found 8" in render(results)


def test_a_run_comes_back_from_its_json() -> None:
    results = results_of(calls=3000, send=8000, nats=1000, redis=4000)
    results.missing["kafka"] = "no mvn"
    results.add_error("live-1", "nats:default", "calls", "7 messages were lost")

    again = Results.from_json(results.to_json())

    assert render(again) == render(results)
    assert json.loads(again.to_json()) == json.loads(results.to_json())


def test_the_picture_has_a_bar_for_each_line_and_ours_stands_out() -> None:
    drawn = picture(results_of(calls=3000, send=8000, nats=1000, redis=4000))

    root = ElementTree.fromstring(drawn)
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("x")]
    assert len(bars) == 4
    assert [bar.get("width") for bar in bars] == ["142.5", "380.0", "47.5", "190.0"]
    assert len({bar.get("fill") for bar in bars}) == 2


# --- the page


def test_figures_go_between_the_marks_and_leave_the_rest_alone() -> None:
    page = command.PAGE.read_text()

    written = into_page(page, "a table")

    assert figures_of(written) == "a table"
    assert into_page(written, figures_of(page)).split() == page.split()


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for figures"):
        into_page("# Benchmarks", "a table")


def test_the_figures_in_the_docs_are_those_of_the_run_that_is_kept() -> None:
    results = Results.from_json(command.KEPT.read_text())

    assert figures_of(command.PAGE.read_text()) == render(results, "pictures/peers.svg")
    assert command.PICTURE.read_text() == picture(results)


def test_a_run_of_clusters_has_its_own_modes_and_its_own_place_in_the_page() -> None:
    results = Results({**FACTS, "cluster": True})
    results.add("publish-1", "flintmq:always", "calls", {"msgs/s": 900.0})
    results.add("publish-1", "nats:fsync", "calls", {"msgs/s": 1000.0})

    text = render(results)

    assert "JetStream R3" in text
    assert "**not ahead**" in text
    page = command.PAGE.read_text()
    written = into_page(page, text, CLUSTER_BEGIN)
    assert figures_of(written, CLUSTER_BEGIN) == text
    assert figures_of(written) == figures_of(page)


def test_the_figures_of_clusters_in_the_docs_are_those_of_the_run_that_is_kept() -> None:
    if command.CLUSTER_KEPT.exists():
        results = Results.from_json(command.CLUSTER_KEPT.read_text())
        assert figures_of(command.PAGE.read_text(), CLUSTER_BEGIN) == render(results)


def test_nodes_of_nats_know_each_other_and_sync_as_they_are_told() -> None:
    said = nats_cluster_settings(1, [1, 2, 3], [11, 12, 13], 22, Path("/there"), True)

    assert "listen: 127.0.0.1:2\n" in said
    assert "listen: 127.0.0.1:12" in said
    assert said.count("nats-route://") == 3
    assert "sync_interval: always" in said


# --- the tables of modes and scenarios


def test_every_mode_has_a_server_that_can_be_started() -> None:
    from benchmarks.peers.install import Installed

    known = starters(Installed())
    assert {mode.server for mode in MODES} <= set(known)
    assert len({mode.key for mode in MODES}) == len(MODES)
    assert {mode.server for mode in CLUSTER_MODES} == set(cluster_starters(Installed()))


def test_we_are_there_at_every_durability_that_a_peer_has() -> None:
    ours = {mode.durability for mode in MODES if mode.peer == US}

    assert {mode.durability for mode in MODES} <= ours


def test_every_peer_has_one_mode_at_most_that_stands_for_its_live_path() -> None:
    for peer in (*PEERS, US, BARE):
        live = [mode for mode in MODES if mode.peer == peer and mode.is_live]
        assert len(live) == (0 if peer == "kafka" else 1)


def test_many_in_flight_we_do_in_both_shapes_and_peers_in_their_own() -> None:
    cells = list(cells_of(scenario("publish-64"), MODES))

    ours = [(cell.mode.name, cell.shape) for cell in cells if cell.mode.peer == US]
    assert ours == [
        (name, shape)
        for name in ("always", "interval", "memory")
        for shape in ("calls", "pipeline")
    ]
    assert len([cell for cell in cells if cell.mode.peer == "redis"]) == 3


def test_what_a_mode_leaves_out_is_not_measured() -> None:
    keys = {cell.mode.key for cell in cells_of(scenario("consume"), MODES)}

    assert "mosquitto:saved" not in keys
    assert "mosquitto:default" in keys


def test_each_round_has_the_same_cells_and_begins_with_another() -> None:
    cells = list(cells_of(scenario("batches"), MODES))

    rounds = [take_turns(cells, number) for number in range(3)]

    assert len({one[0].mode.key for one in rounds}) == 3
    assert all(sorted(map(id, one)) == sorted(map(id, cells)) for one in rounds)


# --- what servers are told


def test_nats_is_told_to_sync_only_where_it_shall() -> None:
    assert "sync_interval: always" in nats_settings(4222, Path("/data"), sync_always=True)
    assert "sync_interval" not in nats_settings(4222, Path("/data"), sync_always=False)
    assert "listen: 127.0.0.1:4222" in nats_settings(4222, Path("/data"), sync_always=False)


def test_redis_has_its_own_defaults_or_a_file_that_is_synced_as_told() -> None:
    always = redis_arguments(6379, Path("/data"), "always")

    assert always[always.index("--appendfsync") + 1] == "always"
    assert "--appendonly" not in redis_arguments(6379, Path("/data"), "default")


def test_mosquitto_saves_after_each_change_only_where_it_shall() -> None:
    assert "autosave_interval 1\n" in mosquitto_settings(1883, Path("/data"), saved=True)
    assert "persistence" not in mosquitto_settings(1883, Path("/data"), saved=False)


def test_rabbitmq_looks_for_nothing_outside_its_folder() -> None:
    told = rabbitmq_environment(Path("/run"), Path("/erlang"), 1, 2)

    places = [text for name, text in told.items() if name.endswith(("_FILE", "_BASE", "_DIR"))]
    assert len(places) == 8
    assert all(place.startswith("/run") for place in places)
    assert "{127,0,0,1}" in told["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]


def test_erlang_that_was_unpacked_is_told_where_it_lies(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "erl"
    script.parent.mkdir()
    script.write_text("ROOTDIR=/usr/lib/erlang\n")

    say_where_erlang_is(tmp_path)

    assert script.read_text() == f"ROOTDIR={tmp_path}\n"


def test_what_a_dry_run_would_install_is_read_by_name() -> None:
    said = "Reading...\nInst libcjson1 (1.7 Debian)\nInst mosquitto (2.0)\nConf mosquitto (2.0)\n"

    assert packages_to_install(said) == ["libcjson1", "mosquitto"]


# --- clients


async def test_what_tasks_have_done_is_counted_whole_however_they_overlap() -> None:
    async def call() -> int:
        await asyncio.sleep(0)
        calls.append(1)
        return 1

    calls: list[int] = []

    figures = await in_flight(16, 0.005, call)

    assert figures["count"] + figures["warm"] == len(calls)


def test_a_count_that_is_wrong_voids_the_figure() -> None:
    check("stored", expected=3, found=3)
    with pytest.raises(WrongCount, match="stored: expected 3, found 2"):
        check("stored", expected=3, found=2)


def test_latencies_are_told_in_microseconds() -> None:
    figures = latencies([number / 1e6 for number in range(100, 0, -1)])

    assert round(figures["p50"], 3) == 51
    assert round(figures["p99"], 3) == 100


def test_so_few_latencies_that_one_in_a_thousand_is_nobody_have_no_such_figure() -> None:
    assert "p99.9" not in latencies([0.001] * 999)
    assert latencies([0.001] * 998 + [5.0] * 2)["p99.9"] == 5e6


async def test_what_comes_due_while_a_broker_stalls_has_waited_since_its_own_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    calls: list[int] = []

    async def stalls_at_first(count: int) -> int:
        nonlocal now
        now += 0.0 if calls else 1.0
        calls.append(count)
        return count

    async def never() -> int:
        raise AssertionError("what is due goes in one call")

    monkeypatch.setattr(driving, "monotonic", lambda: now)

    taken = await on_schedule(10, 11, never, stalls_at_first)

    assert calls == [1, 10]
    assert [round(one, 6) for one in taken] == [1.0, *(number / 10 for number in range(9, -1, -1))]


async def test_on_a_schedule_a_call_does_not_wait_for_the_one_before() -> None:
    under_way = most = 0
    all_there = asyncio.Event()

    async def call() -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 5:
            all_there.set()
        await all_there.wait()
        return 1

    assert len(await on_schedule(1e6, 5, call)) == 5
    assert most == 5


def test_values_differ_and_are_the_same_for_everybody() -> None:
    ours, theirs = (Job(peer, "", "publish", "", "", size=100).values() for peer in (US, "redis"))

    assert len(set(ours)) == len(ours) == 1000
    assert ours == theirs


def test_the_pace_of_a_fan_out_is_that_of_the_slowest_ear(tmp_path: Path) -> None:
    page = tmp_path / "page"
    Progress.create(page)
    ours, theirs = Progress(str(page)), Progress(str(page))
    ears = Ears(Job(US, "always", "live listen", "", "", subscribers=2), ours)

    ears.heard(0, 500)
    ears.heard(1, 200)
    ears.expect(350)

    assert theirs.heard() == 200
    assert ears.is_done()
    ours.close()
    theirs.close()


def test_a_job_comes_back_from_its_json() -> None:
    job = Job("nats", "fsync", "publish", "127.0.0.1:4222", "orders", size=10)

    assert Job.from_json(job.to_json()) == job
    assert (job.host, job.port, len(job.values()[0])) == ("127.0.0.1", 4222, 10)


def test_a_peer_or_a_scenario_that_is_not_known_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "zeromq"])

    assert "there is no zeromq; there are nats, redis" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run_beside_nats_measures_both_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := install(["nats"]).missing:
        pytest.skip(f"NOT TESTED: NATS cannot be installed here, to be measured beside: {missing}")
    kept = tmp_path / "run.json"
    arguments = ["--quick", "--only", "nats", "--scenarios", "consume,live-8"]

    code = command.main([*arguments, "--json", str(kept), "--chart", str(tmp_path / "run.svg")])

    results = Results.from_json(kept.read_text())
    assert (code, results.errors, results.missing) == (0, {}, {})
    for one in results.scenarios():
        for line in results.lines(one):
            assert line.spread is not None
            assert line.spread.median > 0
    assert {one.name for one in results.scenarios()} == {"consume", "live-8"}
    assert results.worst(scenario("consume"), "nats") is not None
    assert "| NATS |" in capsys.readouterr().out
    assert (tmp_path / "run.svg").read_text().startswith("<svg")

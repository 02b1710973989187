"""The run of builds: aims, rows that became slower, the page. Nothing here measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.builds import __main__ as command
from benchmarks.builds.aims import AIMS, Found, slower, verdicts
from benchmarks.builds.page import BEGIN, render
from benchmarks.builds.rows import HERMES, IN_PROCESS, Build, network_rows
from benchmarks.peers.page import figures_of, into_page
from benchmarks.peers.scenarios import SCENARIOS
from benchmarks.peers.servers import environment_of


def found_of(**rates: tuple[float, float]) -> Found:
    """One in flight, synced: messages per second and the server's microseconds, by column."""
    return Found(
        {
            ("publish-1 synced", column): [{"msgs/s": rate, "server us": server}]
            for column, (rate, server) in rates.items()
        }
    )


def test_an_aim_is_judged_for_the_build_it_is_for() -> None:
    found = found_of(new=(900, 90), compiled=(1000, 45), redis=(1000, 10))

    said = {
        (aim.title, build): is_met for aim, build, _, is_met in verdicts(found, ["new", "compiled"])
    }

    assert said["lone durable publish, server µs", "new"] is False
    assert said["lone durable publish, server µs", "compiled"] is True
    assert said["one in flight synced, over Redis", "new"] is True


def test_a_shorter_latency_is_a_ratio_above_one() -> None:
    row = "latency synced"
    found = Found({(row, "new"): [{"p50": 500.0}], (row, "redis"): [{"p50": 1000.0}]})

    [(_, _, figure, _)] = verdicts(found, ["new"])

    assert figure == 2.0


def test_a_row_is_slower_by_processor_time_and_beyond_noise() -> None:
    found = found_of(old=(1000, 100), new=(500, 105), compiled=(2000, 120))

    assert slower(found, ["publish-1 synced"], "old", "new") == []
    assert slower(found, ["publish-1 synced"], "old", "compiled") == [
        ("publish-1 synced", 100, 120)
    ]


def test_every_aim_is_of_a_row_that_is_measured() -> None:
    known = {row.key for row in network_rows()} | {IN_PROCESS, *HERMES}
    everything = {
        (row, column): [{"msgs/s": 1.0, "server us": 1.0, "p50": 1.0}]
        for row in known
        for column in ("new", "compiled", "redis", "tokio-memq", "hermesmq")
    }

    judged = {aim.title for aim, _, _, _ in verdicts(Found(everything), ["new", "compiled"])}

    assert judged == {aim.title for aim in AIMS}


def test_every_scenario_is_a_row_and_each_build_has_its_own_server() -> None:
    rows = network_rows()

    assert {row.scenario.name for row in rows} == {scenario.name for scenario in SCENARIOS}
    modes = [row.mode_of(Build(name, "/there")) for row in rows for name in ("old", "new")]
    assert {mode.server for mode in modes} == {
        "old synced", "old cached", "new synced", "new cached",
    }  # fmt: skip


def test_the_page_names_misses_and_what_has_no_figure() -> None:
    found = found_of(old=(1000, 60), new=(400, 90), redis=(1000, 10))
    titles = {"publish-1 synced": "Publish, 1 in flight, synced"}

    text = render(
        found, titles, ["old", "new", "redis"], ["old", "new"],
        {("publish-1 synced", "nats"): "it did not start"}, ["a machine"],
    )  # fmt: skip

    assert "| Publish, 1 in flight, synced | 1,000; 60.0 | 400; 90.0 | 1,000; 10.0 |" in text
    assert "| one in flight synced, over Redis | new | at least 0.85 | 0.4 | **missed** |" in text
    assert "- Publish, 1 in flight, synced: new 90.0 µs, old 60.0 µs" in text
    assert "nats: it did not start" in text


def test_its_figures_have_a_place_of_their_own_in_the_page() -> None:
    page = command.PAGE.read_text()

    written = into_page(page, "a table", BEGIN)

    assert figures_of(written, BEGIN) == "a table"
    assert figures_of(written) == figures_of(page)


def test_the_figures_in_the_docs_are_those_of_the_run_that_is_kept() -> None:
    if command.KEPT.exists():
        whole = json.loads(command.KEPT.read_text())
        assert figures_of(command.PAGE.read_text(), BEGIN) == command.rendered(whole)


def test_a_folder_without_flintmq_is_no_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["--build", f"old={tmp_path}"])

    assert "has no flintmq" in capsys.readouterr().err


def test_a_process_of_another_build_finds_that_first() -> None:
    assert environment_of("/there")["PYTHONPATH"] == "/there"

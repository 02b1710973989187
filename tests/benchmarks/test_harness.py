"""The benchmarks run and yield the figures they promise. What the figures are is nobody's test."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.report import WIDTH, machine, machine_line, shown, table
from benchmarks.runs import PartFailed, execute_apart, parts_of, run_scenario
from benchmarks.scenario import (
    Case,
    Column,
    Figures,
    Scenario,
    Settings,
    load,
    scenario_names,
    with_ratios,
)
from benchmarks.tokio_memq_peer import build, measure, program
from benchmarks.worker import Job, LoopName, execute, has_uvloop

QUICK = Settings(quick=True, seconds=0.05)
LOOPS: list[LoopName] = ["asyncio", "uvloop"] if has_uvloop() else ["asyncio"]
CASES = [(name, case) for name in scenario_names() for case in load(name).cases]


def test_the_first_scenarios_are_there() -> None:
    assert set(scenario_names()) >= {
        "perf_runner", "batches", "singles", "catch_up", "fan_out", "send", "wake_up", "memory",
        "overflow",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case}" for name, case in CASES])
def test_every_case_yields_the_figures_of_its_columns(name: str, case: str) -> None:
    scenario = load(name)
    figures: dict[str, float] = {}
    for part in parts_of(scenario, case):
        figures |= execute(Job(name, case, part, "asyncio", QUICK))

    figures = with_ratios(scenario, figures)

    optional = {"delivered"} if name == "send" else set()  # there is a case without a reader
    if name == "perf_runner":
        optional = {"tokio_memq", "x_tokio_memq"}  # there only where the crate was built
    assert {column.name for column in scenario.columns} - optional <= set(figures)
    assert all(math.isfinite(figure) for figure in figures.values())


@pytest.mark.skipif(not has_uvloop(), reason="uvloop is an extra")
@pytest.mark.parametrize("name", ["batches", "singles", "wake_up"])
def test_scenarios_run_on_uvloop_too(name: str) -> None:
    case = next(iter(load(name).cases))

    assert execute(Job(name, case, "run", "uvloop", QUICK))


def perf_runner(tokio_memq: dict[str, float]) -> str:
    """The table of one run in which we deliver 150 a second."""
    scenario = load("perf_runner")

    def run(job: Job) -> dict[str, float]:
        figures = {"run": {"published": 150.0, "delivered": 150.0}, "bare": {"bare": 100.0}}
        return figures.get(job.part, tokio_memq)

    lines = run_scenario(
        "perf_runner", scenario, loops=["asyncio"], runs=1, settings=QUICK, execute=run
    )
    return table("perf_runner", scenario, lines, 1)


def test_tokio_memq_is_divided_by_what_it_did_in_the_same_run() -> None:
    row = next(line for line in perf_runner({"tokio_memq": 200.0}).splitlines() if "1P/1C" in line)

    assert row.split()[-2:] == ["200", "0.75"]


def test_there_is_no_ratio_where_tokio_memq_did_not_run() -> None:
    row = next(line for line in perf_runner({}).splitlines() if "1P/1C" in line)

    assert row.split()[-2:] == ["-", "-"]


def test_a_table_without_tokio_memq_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "run_scenario", _with(_ones))
    monkeypatch.setattr("benchmarks.tokio_memq_peer.shutil.which", lambda name: None)
    monkeypatch.setattr(
        cli, "load", lambda name: replace(load(name), prepare=lambda: build(tmp_path))
    )

    assert cli.main(["perf_runner", "--runs", "1", "--loop", "asyncio"]) == 0
    assert "cargo is not installed" in capsys.readouterr().out


async def test_what_was_built_from_another_source_is_not_measured(tmp_path: Path) -> None:
    for name in ("target/release/beside", "Cargo.toml", "src/main.rs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("something else")

    assert program(tmp_path) is None
    assert await measure([1, 1, 100, 10, 1, 10], tmp_path) == {}


def _ones(job: Job) -> dict[str, float]:
    """Figures without a run."""
    scenario = load(job.scenario)
    return {column.name: 1.0 for column in scenario.columns}


# --- runs, medians, ratios


def scenario_of(run: Callable[[Settings], Awaitable[Figures]]) -> Scenario:
    columns = (
        Column("speed", "speed/s", "rate", with_range=True),
        Column("bare", "bare/s", "rate"),
        Column("x_bare", "x bare", "times", ratio_of=("speed", "bare")),
    )
    return Scenario(title="made up", columns=columns, cases={"one": Case(run, run)})


async def never(settings: Settings) -> Figures:
    raise AssertionError("not called")


def test_a_line_is_the_median_and_the_range_of_its_runs() -> None:
    speeds = iter([100.0, 300.0, 200.0])
    parts: list[str] = []

    def run(job: Job) -> dict[str, float]:
        parts.append(job.part)
        return {"speed": next(speeds)} if job.part == "run" else {"bare": 10.0}

    (line,) = run_scenario(
        "made_up", scenario_of(never), loops=["asyncio"], runs=3, settings=QUICK, execute=run
    )

    speed, ratio = line.spreads()["speed"], line.spreads()["x_bare"]
    assert (speed.median, speed.min, speed.max) == (200.0, 100.0, 300.0)
    assert (ratio.median, ratio.min, ratio.max) == (20.0, 10.0, 30.0)
    assert parts == ["run", "bare", "bare", "run", "run", "bare"]  # they take turns in going first


def test_a_part_that_fails_is_reported_and_the_other_lines_go_on() -> None:
    scenario = scenario_of(never)
    failures: list[str] = []

    def run(job: Job) -> dict[str, float]:
        if job.loop == "asyncio":
            raise PartFailed("WrongResult: one message short", "a trace")
        return {"speed": 1.0, "bare": 2.0}

    lines = run_scenario(
        "made_up", scenario, loops=["asyncio", "uvloop"], runs=2, settings=QUICK, execute=run,
        on_failure=lambda step, error: failures.append(step),
    )  # fmt: skip

    assert [line.error for line in lines] == ["WrongResult: one message short", None]
    assert len(failures) == 1
    assert "error: WrongResult: one message short" in table("made_up", scenario, lines, 2)


def test_a_scenario_that_does_not_depend_on_the_loop_runs_on_one() -> None:
    lines = run_scenario(
        "memory", load("memory"), loops=["uvloop", "asyncio"], runs=1, settings=QUICK,
        execute=_ones,
    )  # fmt: skip

    assert {line.loop for line in lines} == {"uvloop"}


# --- what is shown


@pytest.mark.parametrize("name", scenario_names())
def test_tables_fit_a_hundred_columns(name: str) -> None:
    def wide(job: Job) -> dict[str, float]:
        units = {column.name: column.unit for column in load(job.scenario).columns}
        return {figure: 12_345_678.0 if unit == "rate" else 123.4 for figure, unit in units.items()}

    lines = run_scenario(name, load(name), loops=LOOPS, runs=2, settings=QUICK, execute=wide)

    assert max(map(len, table(name, load(name), lines, 2).splitlines())) <= WIDTH


def test_rates_are_short() -> None:
    rates = [950.0, 1_642.0, 235_000.0, 999_600.0, 2_265_000.0]

    assert [shown(rate, "rate") for rate in rates] == ["950", "1,642", "235 k", "1.00 M", "2.27 M"]


def test_the_machine_is_named_without_saying_whose_it_is() -> None:
    facts = machine()

    assert set(facts) == {"cores", "python", "system", "load_average_at_start"}
    assert "cores" in machine_line(facts)


# --- the command line


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list"]) == 0

    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == scenario_names()


@pytest.mark.parametrize("wrong", [["nonsense"], ["--runs", "0"], ["--loop", "trio"]])
def test_a_wrong_command_line_is_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(wrong)

    assert exit.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_ctrl_c_ends_it_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_scenario", interrupted)

    assert cli.main(["wake_up"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_failed_scenario_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(job: Job) -> dict[str, float]:
        raise PartFailed("boom", "the whole trace")

    monkeypatch.setattr(cli, "run_scenario", _with(failing))

    assert cli.main(["wake_up", "--quick", "--loop", "asyncio"]) == 1
    shown = capsys.readouterr()
    assert "the whole trace" in shown.err
    assert json.loads(shown.out.splitlines()[-1])["rows"][0]["error"] == "boom"


def _with(execute: Callable[[Job], dict[str, float]]) -> Callable[..., object]:
    def run(*arguments: object, **options: object) -> object:
        return run_scenario(*arguments, **options, execute=execute)  # type: ignore[arg-type]

    return run


@pytest.mark.slow
def test_a_worker_that_fails_says_why() -> None:
    with pytest.raises(PartFailed, match="KeyError: 'no such case'"):
        execute_apart(Job("wake_up", "no such case", "run", "asyncio", QUICK))


@pytest.mark.slow
def test_the_command_prints_a_table_and_a_json_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "wake_up", "send", "--quick", "--loop", "asyncio"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["scenario"] for line in lines] == ["wake_up", "send"]
    assert "wake_up: microseconds from publish until an idle reader runs again" in done.stdout

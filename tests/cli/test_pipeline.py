"""`flintmq pipeline plan`, `ls` and `new`: what needs no Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

import flintmq
from flintmq.cli.root import run

from .mini_shell import Done, run_line

DATA = "file://{}/data"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("FLINTMQ_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FLINTMQ_CONTEXTS", str(tmp_path / "contexts.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flint(line: str) -> Done:
    return run_line(f"flintmq pipeline {line}")


# --- new


@pytest.mark.parametrize(("option", "file"), [("", "sums.toml"), ("--yaml", "sums.yaml")])
def test_what_new_writes_passes_the_check_and_overwrites_nothing(option: str, file: str) -> None:
    done = flint(f"new sums {option}")
    assert done.code == 0
    assert f"Run it: `flintmq pipeline run {file} --once`" in done.out.decode()

    assert flint(f"check {file} --quick").code == 0
    text = Path(file).read_text()
    again = flint(f"new sums {option}")
    assert (again.code, Path(file).read_text()) == (2, text)
    assert f"{file} already exists and is not overwritten" in again.err


def test_both_languages_begin_with_the_same_pipeline() -> None:
    flint("new sums")
    flint("new sums --yaml")

    drawn = [flint(f"plan sums.{kind}").out for kind in ("toml", "yaml")]
    assert drawn[0] == drawn[1]
    commented = [
        sum(line.startswith("#") for line in Path(f"sums.{kind}").read_text().splitlines())
        for kind in ("toml", "yaml")
    ]
    assert min(commented) > 20, "it is explained"


def test_what_is_commented_out_works_too(place: Path) -> None:
    flint("new sums")
    text = Path("sums.toml").read_text()
    for line in text.splitlines():
        if line.startswith("# ") and ("=" in line or line.startswith("# [")):
            commented = line.removeprefix("# ")
            if (
                "static" not in commented
                and "--set" not in commented
                and "[tests" not in text.partition(line)[0]
            ):
                text = text.replace(line + "\n", commented + "\n")
    Path("sums.toml").write_text(text.replace("... or by a function", "# ... or by a function"))
    Path("sums.py").write_text("def large(orders, least):\n    return orders\n")

    done = flint("check sums.toml --quick")
    assert done.code == 1, "one thing is left: nobody takes the step that was added"
    assert done.err.count("\n") == 1
    assert "the step large is not used" in done.err


@pytest.mark.parametrize("name", ["a/b c", "'$x'", "x.json"])
def test_new_takes_names_of_pipelines_only(name: str) -> None:
    assert flint(f"new '{name}'" if " " in name else f"new {name}").code == 2
    assert not list(Path().glob("*.toml"))


def test_new_says_what_it_did_to_programs_too() -> None:
    done = flint("new sums --output json")

    assert json.loads(done.out) == {"file": "sums.toml", "name": "sums"}


# --- plan


def test_a_plan_is_drawn_without_spark_or_a_broker() -> None:
    flint("new sums")
    drawn = flint("plan sums.toml --set output=elsewhere").out.decode()

    assert "topic elsewhere" in drawn
    assert "▶" in drawn


def test_a_plan_as_svg_and_for_programs() -> None:
    flint("new sums")
    done = flint("plan sums.toml --svg sums.svg --output json")
    told = json.loads(done.out)

    ElementTree.parse("sums.svg")
    assert told["svg"] == "sums.svg"
    assert {(node["kind"], node["name"]) for node in told["nodes"]} == {
        ("source", "orders"), ("step", "totals"), ("sink", "totals"),
        ("dead letters", "orders.dead-letters"),
    }  # fmt: skip
    assert told["links"][-1] == {
        "from": "totals", "from_kind": "step", "to": "totals", "to_kind": "sink",
    }  # fmt: skip
    assert flint("plan sums.toml --svg nowhere/x.svg").code == 2


def test_a_plan_of_what_is_wrong_tells_what_is_wrong() -> None:
    Path("x.toml").write_text("nome = 1")
    done = flint("plan x.toml")

    assert (done.code, done.out) == (1, b"")
    assert "flintmq: x.toml:1:1: a pipeline has no 'nome'; did you mean name?" in done.err
    assert json.loads(flint("plan x.toml --output json").out)["problems"][0]["line"] == 1


def test_a_terminal_that_knows_ascii_only_gets_ascii(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flint("new sums")
    monkeypatch.setattr("flintmq.cli.pipeline_plan._has_signs", lambda: False)
    capfd.readouterr()

    assert run(["pipeline", "plan", "sums.toml"]) == 0
    assert capfd.readouterr().out.isascii()


# --- ls


def test_pipelines_are_listed_with_the_lag_of_their_flows(place: Path) -> None:
    server = DATA.format(place)
    with flintmq.connect_sync(server) as mq:
        mq.publish_batch("orders", [b"%d" % n for n in range(10)])
        with mq.reader("orders", name="pipeline.sums.totals", start="earliest") as reader:
            reader.read_batch(4)
            reader.commit()
    flint("new sums")
    done = flint(f"ls --server {server}")

    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.decode().splitlines()] == [
        ["FILE", "PIPELINE", "FLOW", "SOURCES", "SINK", "LAG"],
        ["sums.toml", "sums", "totals", "topic", "orders", "topic", "orders.totals", "6"],
        ["sums.toml", "sums", "orders.dead-letters", "topic", "orders", "topic", "orders.bad", "-"],
    ]
    [told] = json.loads(flint(f"ls . --server {server} --output json").out)
    assert (told["name"], told["problem"], told["unreachable"]) == ("sums", None, None)
    assert told["flows"][0]["groups"] == ["pipeline.sums.totals"]
    assert [flow["lag"] for flow in told["flows"]] == [6, None]


def test_a_broker_that_is_not_there_is_told_of_and_no_error() -> None:
    flint("new sums")
    done = flint("ls --server flint://127.0.0.1:1")

    assert done.code == 0
    assert "topic orders.totals  -" in done.out.decode()
    assert done.err.count("\n") == 1
    assert "no connection to flint://127.0.0.1:1" in done.err


def test_files_of_other_things_are_passed_over_and_wrong_ones_are_told() -> None:
    Path("pyproject.toml").write_text('[project]\nname = "x"\n')
    Path("broken.yaml").write_text("a: [")
    Path("wrong.toml").write_text('name = "wrong"\n[sinks.x]\nfrom = "y"\nconsole = true\n')
    done = flint("ls --server flint://127.0.0.1:1")

    assert done.code == 0
    assert done.out == b""
    told = done.err.splitlines()
    assert len(told) == 2
    assert told[0].startswith("flintmq: broken.yaml:1:5: ")
    assert (
        told[1]
        == "flintmq: wrong.toml:1:1: the pipeline has no source; write [sources.NAME] (and 1 more)"
    )


def test_a_directory_without_pipelines_says_so() -> None:
    done = flint("ls")

    assert (done.code, done.out) == (0, b"")
    assert "no pipelines in ." in done.err

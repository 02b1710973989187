"""Tests in a pipeline file are read and checked with the rest of it, without Spark."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.pipeline.check.checking import check
from flintmq.pipeline.define.problems import PipelineInvalid
from flintmq.pipeline.define.reading import read_cases, read_pipeline
from flintmq.pipeline.trial.trying import duration
from tests.cli.mini_shell import run_line

FILE = """name = "x"
[parameters]
region = "north"
needed = {}
[sources.orders]
topic = "orders"
schema = "id bigint, region string"
[sinks.out]
from = "orders"
topic = "${needed}"
[tests.one]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(FILE + text)
    return path


def test_rows_are_read_with_parameters_and_from_files(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'set = { needed = "out" }\n'
        'given.orders = [{ id = 1, region = "${region}" }, "raw"]\n'
        'expected.out = "out.jsonl"\n',
    )
    (tmp_path / "out.jsonl").write_text('{"id": 1}\n\nraw text\n"text"\n')
    with pytest.raises(PipelineInvalid, match=r"out\.jsonl:3: not JSON"):
        read_pipeline(path, {"needed": "out"}, {})
    (tmp_path / "out.jsonl").write_text('{"id": 1}\n\n"text"\n')
    case = read_pipeline(path, {"needed": "out"}, {}).tests["one"]

    assert case.given == {"orders": ({"id": 1, "region": "north"}, "raw")}
    assert case.expected == {"out": ({"id": 1}, "text")}
    assert read_cases(path)["one"].set == {"needed": "out"}, "though a parameter has no value"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("given.orders = []", "x.toml:11:8: the test one expects nothing; add expected.SINK"),
        ("given.order = []\nexpected.out = []", "x.toml:12:7: unknown source 'order'; did you mean orders?"),
        ("expected.outt = []", "x.toml:12:10: unknown sink 'outt'; did you mean out?"),
        ("given.orders = [{ idd = 1 }]\nexpected.out = []", "has the column 'idd', which the source has not; did you mean id?"),
        ("time = 'noon'\nexpected.out = []", "x.toml:12:8: time must be a time with its zone, not 'noon'"),
        ("expected.out = []\nbatches = [{ expected = { out = [] } }]", "batches beside given or expected rows"),
        ("batches = [{ after = '5m', expected = { out = [] } }]", "after must be a time such as '10 seconds', not '5m'; did you mean '5 minutes'?"),
        ("expected.out = 'no.jsonl'", "x.toml:12:16: cannot read"),
        ("expected.out = [1]", "the rows of out must be a list of tables and texts, or a file, not a list"),
        ("expects = 1", "a test has no 'expects'; did you mean expected?"),
        ("batches = [{ give = 1, expected = { out = [] } }]", "a batch has no 'give'; did you mean given?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_test_is_told_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path, text)
    try:
        problems = check(read_pipeline(path, {"needed": "out"}, {}))
    except PipelineInvalid as error:
        problems = error.problems

    assert [problem in str(one) for one in problems] == [True], problems


def test_a_file_without_tests_and_an_unknown_name_are_refused_before_spark(tmp_path: Path) -> None:
    path = written(tmp_path, "expected.out = []\n")
    unknown = run_line(f"flintmq pipeline test {path} --only two")
    path.write_text(path.read_text().partition("[tests")[0])
    none = run_line(f"flintmq pipeline test {path} --set needed=out")

    assert (unknown.code, none.code) == (2, 2)
    assert "has no test 'two'; there are one" in unknown.err
    assert "has no tests; add [tests.NAME]" in none.err


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("{ 'a b' = 'id > 0' }", "'a b' is not a valid rule name; use letters"),
        ("{ r = '' }", "the rule r is empty"),
        ("{ r = { otherwise = 'drop' } }", "the rule r needs 'that'"),
        ("{ r = { that = 'id > 0', otherwise = 'stop' } }", "otherwise must be one of count, drop, fail, dead-letter"),
        ("{ r = { that = 'id > 0', otherwise = 'dead-letter' } }", "orders has none; add dead_letters to the source"),
        ("{ r = 5 }", "the rule r must be a text or a table"),
        ("'id > 0'", "expect must be a table of rules"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule_is_told(tmp_path: Path, rules: str, problem: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(FILE.partition("[tests")[0].replace("[sinks", f"expect = {rules}\n[sinks", 1))
    try:
        problems = check(read_pipeline(path, {"needed": "out"}, {}))
    except PipelineInvalid as error:
        problems = error.problems

    assert [problem in str(one) for one in problems] == [True], problems


def test_times_are_added_up() -> None:
    assert duration("1 hour 30 minutes").total_seconds() == 5400
    assert duration("250 milliseconds").total_seconds() == 0.25
    assert duration(None).total_seconds() == 0

"""Tests of pipelines run on Spark, without a broker: state, time, dead letters, errors."""
# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.mini_shell import run_line

pytestmark = pytest.mark.spark

LATE = """
name = "late"
[sources.orders]
topic = "orders"
schema = "id bigint, at timestamp"
watermark = { column = "at", delay = "10 seconds" }
[sources.names]
topic = "names"
schema = "id bigint, name string"
static = true
[steps.seen]
sql = "select name, orders._timestamp as arrived, orders._key as key, current_timestamp() as now from orders join names using (id)"
[steps.counted]
sql = "select window.start as since, count(*) as n from orders group by window(at, '1 minute')"
[sinks.seen]
from = "seen"
topic = "seen"
[sinks.counted]
from = "counted"
topic = "counted"

[tests.time]
time = "2026-03-01T12:00:00Z"
[[tests.time.batches]]
given.names = [{ id = 1, name = "anna" }]
given.orders = [{ id = 1, at = "2026-01-01T00:00:10Z", _key = "k" }]
expected.seen = [{ name = "anna", key = "k", arrived = 2026-03-01T12:00:00Z, now = 2026-03-01T12:00:00Z }]
expected.counted = []
[[tests.time.batches]]
after = "1 hour 30 minutes"
given.orders = "more.jsonl"
expected.seen = [{ name = "anna", now = 2026-03-01T13:30:00Z }]
expected.counted = [{ since = "2026-01-01T00:00:00Z", n = 1 }]

[tests.wrong]
given.names = [{ id = 1, name = "anna" }]
given.orders = [{ id = 1, at = "2026-01-01T00:00:10Z" }]
expected.seen = [{ name = "bert" }]

[tests.stops]
given.orders = ["rubbish"]
error = "orders/0/0 does not decode"
"""


def test_rows_come_out_as_they_would_and_what_differs_is_told(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "late.toml").write_text(LATE)
    (tmp_path / "more.jsonl").write_text('{"id": 1, "at": "2026-01-01T00:02:00Z"}\n')

    done = run_line(f"flintmq pipeline test {tmp_path / 'late.toml'} --output json")
    told = json.loads(done.out)

    assert (done.code, told["passed"], told["failed"]) == (1, 2, 1)
    assert [(one["name"], one["passed"], one["error"]) for one in told["tests"]] == [
        ("time", True, None),
        ("wrong", False, None),
        ("stops", True, None),
    ]
    assert told["tests"][1]["comparisons"][0]["differences"] == [
        {"expected": {"name": "bert"}, "found": None},
        {"expected": None, "found": {"name": "anna"}},
    ]


def test_what_new_writes_passes_its_own_test(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_line("flintmq pipeline new sums --yaml")
    done = run_line("flintmq pipeline test sums.yaml")

    assert done.code == 0, done.out
    assert "sums.yaml: 1 passed, 0 failed" in done.out.decode()


RULES = """
name = "rules"
[sources.orders]
topic = "orders"
schema = "id bigint, amount double"
dead_letters = "orders.bad"
expect = { positive = { that = "amount > 0", otherwise = "dead-letter" }, small = "amount < 100" }
[steps.known]
sql = "select id, amount from orders"
expect = { known = { that = "id < 10", otherwise = "drop" } }
[steps.strict]
sql = "select id from orders"
expect = { even = { that = "id % 2 = 0", otherwise = "fail" } }
[sinks.known]
from = "known"
topic = "known"
[sinks.strict]
from = "strict"
topic = "strict"

[tests.rules]
given.orders = [{ id = 2, amount = 1 }, { id = 4, amount = -1 }, { id = 6 }, { id = 8, amount = 500 }, { id = 10, amount = 2 }, { id = "x", amount = 1 }, "{"]
expected.known = [{ id = 2 }, { id = 8 }]
expected.strict = [{ id = 2 }, { id = 8 }, { id = 10 }]
[[tests.letters.batches]]
given.orders = [{ id = 4, amount = -1, _key = "k", _headers = { a = "b" } }, { id = "x", amount = 1 }, "{"]
[tests.letters.batches.expected]
"orders.dead-letters" = [
  { key = "k", value = '{"id": 4, "amount": -1}', headers = { a = "b", flintmq-source = "orders/0/0", flintmq-why = "breaks the rule 'positive': amount > 0" } },
  { value = '{"id": "x", "amount": 1}', headers = { flintmq-why = "not JSON of this schema", flintmq-detail = "Expected `int | null`, got `str` - at `$.id`" } },
  { value = "{", headers = { flintmq-why = "not JSON of this schema", flintmq-detail = "Input data was truncated" } },
]
[tests.odd]
given.orders = [{ id = 3, amount = 1 }]
error = "strict: a row breaks the rule 'even' (id % 2 = 0): {\\"id\\":3}"
"""


def test_rows_that_break_a_rule_are_dropped_written_to_dead_letters_or_end_the_flow(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "rules.toml").write_text(RULES)

    done = run_line(f"flintmq pipeline test {tmp_path / 'rules.toml'}")

    assert done.code == 0, done.out.decode()

"""The ready-made pipelines, on data with a known answer.

Each meets an empty topic, then rows in some order, doubled, late or not to be decoded; it ends, and
goes on with more. What comes out is what plain Python makes of the same (`answers`).
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.client.blocking.client import BlockingClient

from .. import answers
from ..answers import Row
from ..ready import BASE, Ready, Sent, batches_of, decoded, in_order

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

BAD = [b"no JSON at all", b'{"id": "not a number", "at": 7, "reading": "x", "position": "y"}']


def some_orders(count: int, *, apart: float, first: int = 0, seed: int = 1) -> list[Sent]:
    """Orders in about the order of their times, with doubles, late ones and such as are none."""
    chance = random.Random(seed + first)
    rows: list[Sent] = []
    for number in range(first, first + count):
        at = round(BASE + number * apart + chance.uniform(-2, 2), 3)
        rows.append(
            {
                "id": number,
                "region": chance.choice(["eu", "us", "asia"]),
                "amount": chance.randrange(1, 4000) / 4,
                "at": at,
            }
        )
        if number % 17 == 0:
            rows.append(rows[-1])
        if number % 41 == 40:
            rows.append(BAD[number % 2])
        if number % 50 == 49:
            rows.append({"id": -number, "region": "eu", "amount": 1.0, "at": at - 100 * apart})
    return rows


def only_rows(*parts: list[Sent]) -> list[Row]:
    return [row for part in parts for row in part if isinstance(row, dict)]


def bad_of(*parts: list[Sent]) -> list[bytes]:
    return [row for part in parts for row in part if isinstance(row, bytes)]


def test_archive_and_replay(spark: Any, ready: Ready, topic: str, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    ready.mq.create_topic(topic)
    parts = [some_orders(120, apart=100), some_orders(120, apart=100, first=120)]
    parts[1].append({"id": 9999, "region": "eu", "amount": 2.0})
    directory = tmp_path / "archive"
    settings = {"input": topic, "directory": directory, "batch": 50}

    ready.run("archive", **settings)
    for part in parts:
        ready.publish(topic, part, key="region")
        ready.run("archive", **settings)

    stored = dataset.dataset(directory, partitioning="hive").to_table().to_pylist()
    with ready.mq.reader(topic) as reader:
        by_offset = {message.offset: message for message in reader.read_batch(10_000)}
    expected = [
        row | {"at": row.get("at") or by_offset[len(by_offset) - 1].timestamp}
        for row in only_rows(*parts)
    ]
    found: dict[tuple[str, str], list[int]] = {}
    for row in stored:
        found.setdefault((row["date"], f"{row['hour']:02}"), []).append(row["id"])
        message = by_offset[row["offset"]]
        assert (decoded(message.value)["id"], message.key) == (row["id"], row["key"])
    assert {hour: sorted(ids) for hour, ids in found.items()} == answers.by_hour(expected)
    assert sorted(ready.values(f"{topic}.bad")) == sorted(bad_of(*parts))

    hours = sorted({path.parent for path in directory.rglob("*") if path.is_file()})
    files = {hour: len(list(hour.iterdir())) for hour in hours}
    assert [files[hour] for hour in hours[:4]] == [1, 1, 1, 1], "hours that are over are compact"
    assert all(path.suffix == ".parquet" for path in directory.rglob("*") if path.is_file())

    span = 245 * 100
    again = {"directory": directory, "output": f"{topic}.again", "speed": span}
    ready.run("replay", **again)
    ready.run("replay", **again)
    with ready.mq.reader(f"{topic}.again") as reader:
        replayed = list(reader.read_batch(10_000))
    rows = [decoded(message.value) for message in replayed]
    times = [row["at"] for row in rows if "at" in row]
    assert in_order(rows) == in_order(only_rows(*parts))
    assert times == sorted(times)
    assert [message.key for message in replayed] == [row["region"] for row in rows]
    assert replayed[-1].timestamp - replayed[0].timestamp >= 0.9 * (times[-1] - times[0]) / span


def test_lake(spark: Any, ready: Ready, topic: str, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    ready.mq.create_topic(topic)
    parts = [some_orders(60, apart=100), some_orders(60, apart=100, first=60)]
    settings = {"input": topic, "table": tmp_path / "lake", "batch": 25}
    ready.run("lake", **settings)
    for part in parts:
        ready.publish(topic, part, key="region")
        ready.run("lake", **settings)

    rows = deltalake.DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()
    with ready.mq.reader(topic) as reader:
        by_offset = {message.offset: message for message in reader.read_batch(10_000)}
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in only_rows(*parts))
    assert len({row["offset"] for row in rows}) == len(rows)
    for row in rows:
        message = by_offset[row["offset"]]
        assert (decoded(message.value)["id"], message.key) == (row["id"], row["key"])
        assert row["published_day"] == row["published"].date()
    assert sorted(ready.values(f"{topic}.bad")) == sorted(bad_of(*parts))


def test_replay_of_a_topic(spark: Any, ready: Ready, topic: str) -> None:
    ready.mq.create_topic(topic)
    settings = {"input": topic, "output": f"{topic}.again", "rate": 400, "batch": 60}
    ready.run("replay-topic", **settings)
    for part in range(2):
        for number in range(80 * part, 80 * part + 80):
            ready.mq.publish(topic, b"%d" % number, key=str(number % 3), headers={"n": str(number)})
        ready.run("replay-topic", **settings)

    with ready.mq.reader(f"{topic}.again") as reader:
        found = list(reader.read_batch(1000))

    assert [message.value for message in found] == [b"%d" % number for number in range(160)]
    assert [message.key for message in found] == [b"%d" % (n % 3) for n in range(160)]
    assert [message.headers["n"] for message in found] == [b"%d" % n for n in range(160)]
    assert found[59].timestamp - found[0].timestamp >= 0.9 * 40 / 400


def test_rollup(spark: Any, ready: Ready, topic: str) -> None:
    ready.mq.create_topic(topic)
    parts = [some_orders(150, apart=2), some_orders(150, apart=2, first=150)]
    settings = {"input": topic, "output": f"{topic}.totals", "batch": 60}
    ready.run("rollup", **settings)
    for part in parts:
        ready.publish(topic, part)
        ready.run("rollup", **settings)

    expected = answers.rollup(batches_of(parts, 60), window=60, delay=10)
    counted = sum(row["orders"] for row in expected)
    assert 0 < counted < len([row for row in only_rows(*parts) if row["id"] >= 0]), "late ones"
    assert in_order(ready.read(f"{topic}.totals")) == in_order(expected)
    assert sorted(ready.values(f"{topic}.bad")) == sorted(bad_of(*parts))


def test_sessions(spark: Any, ready: Ready, topic: str) -> None:
    ready.mq.create_topic(topic)
    chance = random.Random(3)
    clicks: list[Sent] = []
    at = BASE
    for number in range(240):
        at += chance.choice([5, 20, 60, 90])
        row = {"visitor": f"v{chance.randrange(25)}", "page": f"/{chance.randrange(5)}", "at": at}
        clicks.append(row | {"at": at - chance.choice([0, 0, 0, 300])})
        if number % 60 == 59:
            clicks += [BAD[0], row | {"at": at - 7200}]
    parts = [clicks[:130], clicks[130:]]
    settings = {"input": topic, "output": f"{topic}.sessions", "batch": 50, "gap": "7 minutes"}
    ready.run("sessions", **settings)
    for part in parts:
        ready.publish(topic, part)
        ready.run("sessions", **settings)

    expected = answers.sessions(batches_of(parts, 50), gap=420, delay=600)
    assert len(expected) > 50
    assert in_order(ready.read(f"{topic}.sessions")) == in_order(expected)
    assert ready.values(f"{topic}.bad") == bad_of(*parts)


def test_dedupe(spark: Any, ready: Ready, topic: str) -> None:
    ready.mq.create_topic(topic)
    first = some_orders(100, apart=60)
    second = [*first[-30:], *some_orders(100, apart=60, first=100)]
    settings = {"input": topic, "output": f"{topic}.once", "batch": 60}
    ready.run("dedupe", **settings)
    for part in (first, second):
        ready.publish(topic, part)
        ready.run("dedupe", **settings)

    expected = answers.dedupe(batches_of([first, second], 60), within=3600)
    ids = [row["id"] for row in expected]
    assert len(set(ids)) == len(ids) >= 200
    assert in_order(ready.read(f"{topic}.once")) == in_order(expected)
    assert sorted(ready.values(f"{topic}.bad")) == sorted(bad_of(first, second))


def test_enrich(spark: Any, ready: Ready, topic: str, tmp_path: Path) -> None:
    ready.mq.create_topic(topic)
    customers = [{"id": f"c{n}", "name": f"name {n}", "country": "at"} for n in range(5)]
    directory = tmp_path / "customers"
    directory.mkdir()
    lines = "".join(json.dumps(customer) + "\n" for customer in customers)
    (directory / "all.json").write_text(lines)
    orders: list[Sent] = [
        {"id": number, "customer": f"c{number % 7}", "amount": number / 2} for number in range(90)
    ]
    parts = [[*orders[:50], BAD[0], orders[3]], orders[50:]]
    settings = {"input": topic, "customers": directory, "output": f"{topic}.with", "batch": 30}
    ready.run("enrich", **settings)
    for part in parts:
        ready.publish(topic, part)
        ready.run("enrich", **settings)

    expected = answers.enrich(only_rows(*parts), customers)
    assert in_order(ready.read(f"{topic}.with")) == in_order(expected)
    assert ready.values(f"{topic}.bad") == [BAD[0]]


def test_join(spark: Any, ready: Ready, topic: str) -> None:
    paid_topic = f"{topic}.payments"
    ready.mq.create_topic(topic)
    ready.mq.create_topic(paid_topic)
    chance = random.Random(5)
    orders: list[Sent] = []
    payments: list[Sent] = []
    for number in range(120):
        at = BASE + number * 120
        orders.append({"id": number, "amount": number / 4, "at": at})
        delay = chance.choice([30, 600, 3000, 5000])
        payments.append(
            {"order_id": number if number % 5 else -1, "paid": 1.0, "paid_at": at + delay}
        )
        if number % 30 == 29:
            orders += [BAD[0], orders[-1]]
            payments += [BAD[0], payments[-1]]
            orders.append({"id": 1000 + number, "amount": 1.0, "at": at - 20_000})
    parts = [(orders[:70], payments[:70]), (orders[70:], payments[70:])]
    settings = {"orders": topic, "payments": paid_topic, "output": f"{topic}.paid", "batch": 35}
    ready.run("join", **settings)
    for some_orders_, some_payments in parts:
        ready.publish(topic, some_orders_)
        ready.publish(paid_topic, some_payments)
        ready.run("join", **settings)

    expected = answers.join(
        batches_of([part[0] for part in parts], 35),
        batches_of([part[1] for part in parts], 35),
        within=3600,
        delay=600,
    )
    unpaid = [row for row in expected if "paid" not in row]
    assert unpaid
    assert len(unpaid) < len(expected)
    assert in_order(ready.read(f"{topic}.paid")) == in_order(expected)
    assert ready.values(f"{topic}.bad") == bad_of(orders)
    assert ready.values(f"{paid_topic}.bad") == bad_of(payments)


def test_cdc(spark: Any, ready: Ready, topic: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    ready.mq.create_topic(topic)
    chance = random.Random(8)
    changes: list[Sent] = []
    for position in range(200):
        row = {"id": chance.randrange(40), "name": f"n{position}", "city": None}
        if chance.random() < 0.3:
            change = {"op": "d", "position": position, "before": row, "after": None}
        else:
            change = {"op": "u", "position": position, "before": None, "after": row}
        changes.append(change)
        if position % 20 == 0:
            changes += [change, BAD[1]]
    late = changes[:100]
    chance.shuffle(late)
    parts = [late, [*changes[100:], *late[:30]]]
    settings = {"input": topic, "table": tmp_path / "now", "batch": 70}
    ready.run("cdc", **settings)
    for part in parts:
        ready.publish(topic, part)
        ready.run("cdc", **settings)
        sent = parts[: parts.index(part) + 1]
        table = parquet.read_table(tmp_path / "now").to_pylist()
        assert in_order(table) == in_order(answers.current(only_rows(*sent)))
    assert sorted(ready.values(f"{topic}.bad")) == sorted(bad_of(*parts))


def test_dead_letters(spark: Any, ready: Ready, topic: str, tmp_path: Path, capsys: Any) -> None:
    settings: dict[str, object] = {
        "queues": f"dead.{topic}.>",
        "pipelines": f"{topic}.*.bad",
        "output": f"{topic}.report",
    }
    ready.run("dead-letters", **settings)
    letters: list[Row] = []
    for part in range(2):
        _let_die(ready.mq, f"{topic}", part, letters)
        if part == 0:
            ready.publish(f"{topic}.x", [{"id": part, "at": BASE}, *BAD])
            ready.run("enrich", input=f"{topic}.x", customers=tmp_path, output=f"{topic}.once")
            why = "not JSON of this schema"
            letters += [{"source": f"{topic}.x", "consumer": "pipeline", "reason": why}] * 2
        capsys.readouterr()
        ready.run("dead-letters", **settings)

    expected = answers.deaths(letters, lambda reason: re.sub("[0-9]+", "N", reason))
    latest = {}
    for row in ready.read(f"{topic}.report"):
        latest[row["source"], row["consumer"], row["why"]] = row
    assert {key: row["letters"] for key, row in latest.items()} == expected
    assert {row.get("most_deliveries") for row in latest.values()} == {None, 1}
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["source"], row["consumer"], row["why"]): row["letters"] for row in shown[-3:]} == (
        expected
    )


def _let_die(mq: BlockingClient, topic: str, part: int, letters: list[Row]) -> None:
    for number in range(6):
        mq.publish(topic, {"part": part, "number": number})
    for message in mq.poll(topic, "billing", max=6):
        number = json.loads(message.value)["number"]
        reason = f"no customer {number}" if number % 2 else "no address"
        message.reject(reason)
        letters.append({"source": topic, "consumer": "billing", "reason": reason})


def test_anomalies(spark: Any, ready: Ready, topic: str) -> None:
    ready.mq.create_topic(topic)
    chance = random.Random(11)
    readings: list[Sent] = []
    for number in range(300):
        reading = chance.gauss(20, 2) + (40 if number % 55 == 54 else 0)
        at = BASE + number - chance.choice([0, 0, 0, 30])
        readings.append({"sensor": f"s{number % 4}", "reading": reading, "at": at})
        if number % 70 == 69:
            readings += [readings[-1], BAD[1], {"sensor": "s1", "reading": None, "at": BASE}]
    parts = [readings[:160], readings[160:]]
    settings = {"input": topic, "output": f"{topic}.odd", "batch": 60}
    ready.run("anomalies", **settings)
    for part in parts:
        ready.publish(topic, part)
        ready.run("anomalies", **settings)

    batches = [
        [row for row in batch if row["reading"] is not None] for batch in batches_of(parts, 60)
    ]
    expected = answers.anomalies(batches, last=50, at_least=10, score=4)
    assert len(expected) >= 4
    assert in_order(ready.read(f"{topic}.odd")) == in_order(expected)
    assert ready.values(f"{topic}.bad") == bad_of(*parts)

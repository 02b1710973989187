"""Runs of pipelines: what arrives where, what goes on, what is refused, what stops."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq.client.blocking.client import BlockingClient
from flintmq.errors import InvalidRequest
from flintmq.pipeline.define.definition import FilePlace, Pipeline, Sink, Source, Step
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.run import running
from flintmq.pipeline.run.checkpoints import CheckpointLock
from flintmq.pipeline.run.resuming import CannotResume
from flintmq.pipeline.run.running import Outcome, PipelineFailed, run
from flintmq.pipeline.run.stopping import Stop
from flintmq.pipeline.run.watching import FlowProgress, Watched
from flintmq.spark.connecting import close_lines
from tests.spark.fixtures import BrokerProcess, everything
from tests.spark.test_secured import Keyed

# The first queries of a Java that has just started take a minute on a busy machine.
pytestmark = pytest.mark.timeout(400)


SCHEMA = "id bigint, region string, amount double"
REGIONS = ("eu", "us", "asia")


def orders(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"id": n, "region": REGIONS[n % 3], "amount": n / 2}).encode()
        for n in range(first, first + count)
    ]


class Place_:
    """A broker, a session and a directory; topics by names of this test."""

    def __init__(self, spark: Any, url: str, mq: BlockingClient, topic: str, path: Path) -> None:
        self.spark, self.url, self.mq, self.path = spark, url, mq, path
        self.orders = topic

    def topic(self, name: str) -> str:
        return f"{self.orders}.{name}"

    def source(self, **keywords: Any) -> Source:
        keywords = {"topics": (self.orders,), "schema": SCHEMA, **keywords}
        return Source(name="orders", **keywords)

    def pipeline(
        self, *sinks: Sink, source: Source | None = None, steps: tuple[Step, ...] = (), **more: Any
    ) -> Pipeline:
        facts: dict[str, Any] = {
            "name": "p",
            "servers": self.url,
            "checkpoint": str(self.path / "state"),
            "sources": {"orders": source or self.source()},
            "steps": {step.name: step for step in steps},
            "sinks": {sink.name: sink for sink in sinks},
            "place": FilePlace(str(self.path / "p.toml")),
        }
        return Pipeline(**(facts | more))

    def run(self, pipeline: Pipeline, **keywords: Any) -> Outcome:
        return run(pipeline, spark=self.spark, **({"once": True} | keywords))

    def values(self, name: str) -> list[Any]:
        return [json.loads(message.value) for message in everything(self.mq, self.topic(name))]

    def files(self, name: str) -> list[int]:
        """The ids of the rows in Parquet files, looked at without Spark."""
        from pyarrow import parquet

        return [
            row["id"]
            for path in (self.path / name).rglob("*.parquet")
            for row in parquet.read_table(path).to_pylist()
        ]

    def lag(self, flow: str) -> int:
        return self.mq.group_stats(self.orders, f"pipeline.p.{flow}").lag


@pytest.fixture
def here(
    spark: Any, broker: BrokerProcess, mq: BlockingClient, topic: str, tmp_path: Path
) -> Iterator[Place_]:
    yield Place_(spark, broker.url, mq, topic, tmp_path)
    close_lines()


def test_rows_go_where_sinks_say_once_and_a_second_run_goes_on(here: Place_) -> None:
    (here.path / "own.py").write_text(
        "from beside import VAT\n\n"
        "def taxed(orders, rate):\n"
        "    from pyspark.sql.functions import udf\n"
        "    return orders.withColumn('tax', udf(lambda a: a * VAT * rate, 'double')('amount'))\n\n"
        "def kept(rows, number, into):\n"
        "    with open(into, 'a') as file:\n"
        "        file.writelines(f'{row.id}\\n' for row in rows.collect())\n"
    )
    (here.path / "beside.py").write_text("VAT = 0.5\n")
    beside = FilePlace(str(here.path / "p.toml"))
    pipeline = here.pipeline(
        Sink(name="sums", takes="sums", topic=here.topic("sums"), key="region", mode="update"),
        Sink(name="taxed", takes="taxed", topic=here.topic("taxed"), key="id"),
        Sink(
            name="kept", takes="orders", foreach="own.py:kept",
            arguments={"into": str(here.path / "kept")}, place=beside,
        ),
        Sink(name="files", takes="orders", parquet=str(here.path / "files")),
        Sink(name="shown", takes="eu", console=True),
        source=here.source(dead_letters=here.topic("bad")),
        steps=(
            Step(
                name="sums",
                sql="select region, count(*) as n, sum(amount) as amount from orders group by 1",
            ),
            Step(
                name="taxed", function="own.py:taxed", inputs=("orders",),
                arguments={"rate": 2}, place=beside,
            ),
            Step(name="eu", sql="select id from orders where region = 'eu'"),
        ),
        checkpoint=(here.path / "state").as_uri(),  # through Spark's own file systems
    )  # fmt: skip
    shown: list[str] = []
    reported: list[FlowProgress] = []

    here.mq.publish_batch(here.orders, [*orders(0, 60), b"what?"], key="k", headers={"h": b"1"})
    first = here.run(pipeline, show=lambda _, row: shown.append(row), on_progress=reported.append)
    here.mq.publish_batch(here.orders, orders(60, 30))
    second = here.run(pipeline, show=lambda _, row: shown.append(row))

    assert {name: (flow.rows_in, flow.rows_out) for name, flow in first.flows.items()} == {
        "sums": (61, 3), "taxed": (61, 60), "kept": (61, 60), "files": (61, 60),
        "shown": (61, 20), "orders.dead-letters": (61, 1),
    }  # fmt: skip
    assert second.flows["taxed"].rows_out == 30
    assert {one.flow for one in reported} == set(first.flows)
    assert all(one.lag == 0 for one in reported)
    assert [one.state_rows for one in reported if one.flow == "sums"] == [3]
    # Sums are told at every change, and the last of each region is that of all.
    sums = {row["region"]: (row["n"], row["amount"]) for row in here.values("sums")}
    assert len(here.values("sums")) == 6
    assert sums == {
        region: (30, sum(n / 2 for n in range(90) if n % 3 == number))
        for number, region in enumerate(REGIONS)
    }
    taxed = sorted(here.values("taxed"), key=lambda row: row["id"])
    assert taxed == [{**json.loads(row), "tax": n / 2} for n, row in enumerate(orders(0, 90))]
    assert sorted(map(int, (here.path / "kept").read_text().split())) == list(range(90))
    assert sorted(here.files("files")) == list(range(90))
    assert sorted(json.loads(row)["id"] for row in shown) == list(range(0, 90, 3))
    # What did not decode is as it was, with where it lay and why it is here.
    (dead,) = everything(here.mq, here.topic("bad"))
    assert (dead.value, dead.key) == (b"what?", b"k")
    assert dead.headers == {
        "h": b"1",
        "flintmq-why": b"not JSON of this schema",
        "flintmq-detail": b"JSON is malformed: invalid character (byte 0)",
        "flintmq-source": f"{here.orders}/0/60".encode(),
    }
    # The broker knows the flows by their groups, and that they are through.
    assert {name: here.lag(name) for name in first.flows} == dict.fromkeys(first.flows, 0)


def test_messages_are_passed_on_as_they_are_and_files_and_tables_are_read(here: Place_) -> None:
    here.mq.publish(here.orders, b"\xff\x00", key="a", headers={"h": b"1"}, priority=3)
    here.mq.publish(here.topic("names"), json.dumps({"key": "a", "name": "anna"}))
    for name, text in (("lines", '{"n": 1, "key": "a"}\nno line\n'), ("table", "a;7\nb;8\n")):
        (here.path / name).mkdir()
        (here.path / name / "0.txt").write_text(text)
    sources = [
        here.source(schema=None, options={"includeHeaders": "true"}),
        Source(
            name="names", topics=(here.topic("names"),), schema="key string, name string",
            is_static=True,
        ),
        Source(
            name="lines", files=str(here.path / "lines"), file_format="json",
            schema="n int, key string", dead_letters=here.topic("bad"),
        ),
        Source(
            name="numbers", files=str(here.path / "table"), file_format="csv", is_static=True,
            schema="key string, number int", options={"sep": ";"},
        ),
    ]  # fmt: skip
    pipeline = here.pipeline(
        Sink(name="raw", takes="orders", topic=here.topic("raw")),
        Sink(name="named", takes="named", topic=here.topic("named")),
        sources={source.name: source for source in sources},
        steps=(
            Step(
                name="named",
                sql="select n, name, number from lines join names using (key) "
                "join numbers using (key)",
            ),
        ),
    )

    here.run(pipeline)

    (message,) = everything(here.mq, here.topic("raw"))
    assert (message.value, message.key, message.headers, message.priority) == (
        b"\xff\x00", b"a", {"h": b"1"}, 3,
    )  # fmt: skip
    assert here.values("named") == [{"n": 1, "name": "anna", "number": 7}]
    (dead,) = everything(here.mq, here.topic("bad"))
    assert dead.value == b"no line"
    assert "/lines/0.txt" in str(dead.headers["flintmq-source"])


def test_a_definition_that_the_checkpoint_cannot_bear_is_refused_until_it_begins_anew(
    here: Place_,
) -> None:
    here.mq.publish_batch(here.orders, orders(0, 30))

    def summed(sql: str, **sink: Any) -> Pipeline:
        return here.pipeline(
            Sink(name="sums", takes="out", topic=here.topic("sums"), mode="update", **sink),
            Sink(name="files", takes="cheap", json=str(here.path / "files")),
            steps=(
                Step(name="cheap", sql="select id from orders where amount < 5"),
                Step(name="sums", sql=sql),
                Step(name="out", sql=f"select * from sums /* {sink} */"),
            ),
        )

    by_region = "select region, sum(amount) as amount from orders group by region"
    here.run(summed(by_region))
    with pytest.raises(CannotResume, match="step 'sums' changed, and its state depends on it"):
        here.run(summed(by_region.replace("sum(", "max(")))
    # What has no part in state may change: what comes after it, steps of flows without any.
    changed = summed(f"-- as it was\n{by_region}", trigger="1 second")
    steps = {
        **changed.steps,
        "out": Step(name="out", sql="select *, 1 as more from sums"),
        "cheap": Step(name="cheap", sql="select id from orders where amount < 6"),
    }
    outcome = here.run(replace(changed, steps=steps))
    assert outcome.flows["sums"].batches == 0

    told: list[str] = []
    here.run(summed(by_region.replace("sum(", "max(")), from_scratch=True, tell=told.append)

    assert [row["amount"] for row in here.values("sums")[-3:]] != []
    assert len(here.values("sums")) == 6
    files = [json.loads(line) for path in (here.path / "files").rglob("*.json")
             for line in path.read_text().splitlines()]  # fmt: skip
    assert sorted(row["id"] for row in files) == list(range(10))
    (aside,) = here.path.glob("files.before-*")
    assert told[:-1] == [
        f"flow 'sums': topic {here.topic('sums')!r} keeps its rows, and gets them again",
        f"flow 'files': its files were moved to {aside}",
    ]
    assert told[-1] == "running: sums, files"


def test_the_first_row_that_does_not_decode_ends_the_run_and_the_other_flows_after_their_batch(
    here: Place_,
) -> None:
    here.mq.publish_batch(here.orders, [*orders(0, 20), b'{"id": "x"}'])
    other = Source(name="other", topics=(here.topic("other"),), schema=SCHEMA)
    here.mq.publish_batch(here.topic("other"), orders(0, 20))
    pipeline = here.pipeline(
        # Neither looks at a field of the row: it ends them all the same.
        Sink(name="counted", takes="counted", topic=here.topic("counted"), mode="update"),
        Sink(name="fine", takes="other", topic=here.topic("fine")),
        sources={"orders": here.source(), "other": other},
        steps=(Step(name="counted", sql="select count(*) as n from orders where region = 'eu'"),),
    )

    with pytest.raises(PipelineFailed) as failed:
        here.run(pipeline, once=False)

    assert str(failed.value) == (
        f"flow 'counted' of 'p': source 'orders': {here.orders}/0/20 does not decode: not JSON of "
        "this schema. To write such rows to a topic, set dead_letters = 'some-topic'"
    )
    assert failed.value.outcome.ended == "failed"
    assert failed.value.outcome.flows["fine"].error is None
    assert len(here.values("fine")) in (0, 20)
    assert not here.spark.streams.active


def test_errors_of_steps_and_functions_are_one_line_with_their_place(here: Place_) -> None:
    here.mq.publish_batch(here.orders, orders(0, 3))
    (here.path / "own.py").write_text(
        "def broken(orders):\n    return orders.select('nothing')\n\n"
        "def none(orders):\n    pass\n\n"
        "def raising(rows, number):\n    raise ValueError(f'batch {number} is no good')\n"
    )
    place = FilePlace(str(here.path / "p.toml"), 3, 1)

    def told(step: Step | None = None, **sink: Any) -> str:
        where = sink or {"topic": here.topic("out")}
        steps = () if step is None else (step,)
        with pytest.raises((InvalidRequest, PipelineFailed)) as refused:
            here.run(
                here.pipeline(
                    Sink(name="out", takes="orders" if step is None else "s", place=place, **where),
                    steps=steps,
                )
            )
        return str(refused.value)

    file = here.path / "p.toml"
    file.write_text(
        'name = "p"\n[sources.orders]\ntopic = "t"\n[sinks.out]\nfrom = "s"\nconsole = true\n'
        '[steps.s]\nsql = """\nselect\n  idd from orders"""\n'
    )
    sql = read_pipeline(file).steps["s"]
    assert told(sql).startswith(f"{file}:10:3: step 's': A column, variable, or")
    for function, why in (
        ("broken", "A column, variable, or function parameter with name `nothing`"),
        ("none", "the function of a step must return a DataFrame, not NoneType"),
        ("other", "own.py has no function 'other'"),
    ):
        step = Step(name="s", function=f"own.py:{function}", inputs=("orders",), place=place)
        assert told(step).startswith(f"{place}: step 's': {why}")
    assert told(foreach="own.py:raising") == ("flow 'out' of 'p': ValueError: batch 0 is no good")


def test_a_run_that_is_stopped_ends_between_batches_and_the_next_one_goes_on_there(
    here: Place_,
) -> None:
    here.mq.publish_batch(here.orders, orders(0, 200))
    pipeline = here.pipeline(
        Sink(name="out", takes="orders", topic=here.topic("out")),
        # Through a function of Python's, which Spark does not wait for by itself.
        Sink(name="files", takes="orders", parquet=str(here.path / "files")),
        source=here.source(max_per_batch=10),
    )
    stop = Stop()
    batches: list[FlowProgress] = []

    def seen(progress: FlowProgress) -> None:
        batches.append(progress)
        if {one.flow for one in batches} == {"out", "files"}:
            stop.ask()

    outcome = in_thread(lambda: here.run(pipeline, once=False, stop=stop, on_progress=seen))

    assert outcome.ended == "stopped"
    done = outcome.flows["out"].batches
    assert done < 20
    assert batches[0].lag == 190
    # Spark cannot be stopped between two: of a busy flow the next one may have begun, and it is
    # done again. The broker may have it already.
    assert len(here.values("out")) in (10 * done, 10 * done + 10)
    assert here.lag("out") == 200 - 10 * done
    in_files = 10 * outcome.flows["files"].batches
    assert len(here.files("files")) == in_files
    assert here.lag("files") == 200 - in_files

    lock = CheckpointLock(here.spark, pipeline.checkpoint or "", "out")
    with pytest.raises(InvalidRequest, match=r"process \d+ already runs flow 'out'"):
        here.run(pipeline)
    lock.release()
    # One whose time is up as soon as it has begun harms nothing either.
    assert here.run(pipeline, once=False, seconds=0.0).ended == "stopped"
    here.run(pipeline)

    assert Counter(row["id"] for row in here.values("out")) == Counter(range(200))
    assert sorted(here.files("files")) == list(range(200))


def test_a_flow_begins_once_the_one_before_has_its_sources(
    here: Place_, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two make theirs at once, Spark may lose count of what all sources share."""
    here.mq.publish_batch(here.orders, orders(0, 3))
    begun: list[Watched] = []
    found_beginning: list[bool] = []

    class Noted(Watched):
        def __init__(self, *arguments: Any) -> None:
            found_beginning.extend(one.is_beginning() for one in begun)
            super().__init__(*arguments)
            begun.append(self)

    monkeypatch.setattr(running, "Watched", Noted)
    here.run(
        here.pipeline(
            Sink(name="one", takes="orders", topic=here.topic("one")),
            Sink(name="two", takes="orders", topic=here.topic("two")),
        )
    )

    assert found_beginning == [False]
    assert len(here.values("one")) == len(here.values("two")) == 3


def in_thread(work: Callable[[], Outcome]) -> Outcome:
    """Where there is no Ctrl-C, and Spark knows no session by itself."""
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(100)
    return found[0]


def test_a_key_lets_a_pipeline_in_and_is_written_down_nowhere(
    spark: Any, tmp_path: Path, event_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = Keyed(tmp_path / "broker")
    try:
        broker.publish("orders", *orders(0, 5), b"bad")
        key = broker.key("runner", consume="orders", publish=">")
        here = Place_(spark, broker.url, None, "orders", tmp_path)  # type: ignore[arg-type]
        pipeline = here.pipeline(
            Sink(name="out", takes="orders", topic="out", mode="update"),
            source=here.source(dead_letters="bad"),
        )

        outcome = here.run(pipeline, access={"apiKey": key})

        assert {name: flow.rows_out for name, flow in outcome.flows.items()} == {
            "out": 5, "orders.dead-letters": 1,
        }  # fmt: skip
        written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert len(written) > 4
        for path in [*written, *event_log.rglob("*.inprogress"), *event_log.glob("*")]:
            if path.is_file():
                assert key.encode() not in path.read_bytes(), path
        assert key not in "".join(capfd.readouterr())
        assert key not in repr(outcome)
    finally:
        close_lines()
        broker.end()

"""What tasks and their driver do to the broker, without Spark between: attempts that win and lose,
come late, fail half-way, and are given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.spark import deliveries
from flintmq.spark.connecting import BrokerLine, BrokerSettings, close_lines, line_to
from flintmq.spark.write_options import DeliveryMode, WriteOptions
from flintmq.spark.writing import TaskWritten, WriteJob, write_rows

from .brokers import ThreadedBroker

pa = pytest.importorskip("pyarrow")

JOB = WriteJob("spark/query", 3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    threaded = ThreadedBroker(tmp_path)
    yield threaded
    close_lines()
    threaded.end()


@pytest.fixture
def line(broker: ThreadedBroker) -> BrokerLine:
    return line_to(BrokerSettings(servers=broker.url))


def batch(*values: bytes) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def write(
    broker: ThreadedBroker,
    *batches: Any,
    job: WriteJob = JOB,
    partition: int = 0,
    delivery: DeliveryMode = "exactly_once",
) -> TaskWritten:
    options = WriteOptions(
        settings=BrokerSettings(servers=broker.url), topic="out", delivery=delivery
    )
    return write_rows(options, ["value"], job, partition, iter(batches))


def commit(line: BrokerLine, *written: TaskWritten) -> None:
    pieces = [piece for task in written for piece in task.pieces]
    line.run(line.broker.commit(written[0].job.name, written[0].job.number, pieces))


def there(broker: ThreadedBroker) -> list[bytes]:
    async def read() -> list[bytes]:
        async with broker.client.reader("out") as reader:
            return list((await reader.read_batch(1_000_000, timeout=0)).values)

    return broker.run(read())


def test_nothing_is_seen_before_the_commit_and_everything_after_it(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    one = write(broker, batch(b"a"), batch(b"b"), partition=0)
    two = write(broker, batch(b"c"), partition=1)
    assert there(broker) == []

    commit(line, one, two)

    assert there(broker) == [b"a", b"b", b"c"]


def test_of_two_attempts_at_a_task_one_counts(broker: ThreadedBroker, line: BrokerLine) -> None:
    write(broker, batch(b"a", b"b"))
    winner = write(broker, batch(b"b", b"a"))

    commit(line, winner)

    assert there(broker) == [b"b", b"a"]


def test_an_attempt_that_comes_after_the_commit_changes_nothing(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    winner = write(broker, batch(b"a"))
    commit(line, winner)

    late = write(broker, batch(b"a"))
    commit(line, late)
    commit(line, winner)

    assert there(broker) == [b"a"]


def test_a_checkpoint_that_was_set_back_is_an_error_and_not_taken_for_a_repetition(
    broker: ThreadedBroker,
) -> None:
    pytest.importorskip("pyspark")
    from flintmq.spark.writer import TaskDone, commit_all

    options = WriteOptions(settings=BrokerSettings(servers=broker.url), topic="out")
    commit_all(options, [TaskDone(write(broker, batch(b"a"))), None])
    commit_all(options, [TaskDone(write(broker, batch(b"a")))])
    older = TaskDone(write(broker, batch(b"b"), job=WriteJob(JOB.name, JOB.number - 1)))

    with pytest.raises(flintmq.InvalidRequest, match="restored from an old copy"):
        commit_all(options, [older])
    commit_all(options, [TaskDone(write(broker, job=WriteJob(JOB.name, JOB.number - 1)))])

    assert there(broker) == [b"a"]


def test_a_micro_batch_is_given_up_although_some_of_its_tasks_said_nothing(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    pytest.importorskip("pyspark")
    from flintmq.spark.writer import StreamWriter, TaskDone

    options = WriteOptions(settings=BrokerSettings(servers=broker.url), topic="out")
    writer = StreamWriter(options, ["value"])
    written = write(broker, batch(b"a"))

    writer.abort([None, None], JOB.number)
    writer.abort([None, TaskDone(written), None], JOB.number)

    with pytest.raises(flintmq.FlintError, match="staged"):
        commit(line, written)
    assert there(broker) == []


def test_giving_up_does_not_take_back_what_was_committed(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    written = write(broker, batch(b"a"))
    commit(line, written)

    line.run(line.broker.abort(JOB.name, JOB.number))

    assert there(broker) == [b"a"]


def test_what_was_given_up_cannot_be_committed_and_can_be_written_again(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    given_up = write(broker, batch(b"a"))
    line.run(line.broker.abort(JOB.name, JOB.number))
    with pytest.raises(flintmq.NotStaged):
        commit(line, given_up)

    commit(line, write(broker, batch(b"a")))

    assert there(broker) == [b"a"]


def failing(*batches: Any) -> Iterator[Any]:
    yield from batches
    raise RuntimeError("half-way")


def test_a_task_that_fails_half_way_leaves_nothing_that_is_seen(
    broker: ThreadedBroker, line: BrokerLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "PIECE_BYTES", 1)
    rows = batch(*[b"a"] * 3_000)
    with pytest.raises(RuntimeError, match="half-way"):
        write(broker, *failing(rows, rows))

    commit(line, write(broker, batch(b"b")))

    assert there(broker) == [b"b"]


def test_large_writes_are_laid_ready_in_pieces_and_keep_their_order(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    values = [b"%06d" % number + bytes(500) for number in range(20_000)]
    rows = [batch(*values[start : start + 5_000]) for start in range(0, 20_000, 5_000)]

    written = write(broker, *rows)

    assert len(written.pieces) >= 2
    commit(line, written)
    assert there(broker) == values


def test_laid_ready_before_the_broker_went_away_it_is_there_to_commit(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    written = write(broker, batch(b"a"))
    broker.stop()
    broker.start()

    commit(line, written)

    assert there(broker) == [b"a"]


def test_idempotent_rows_are_there_once_however_often_their_task_runs(
    broker: ThreadedBroker, line: BrokerLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "WINDOW_ROWS", 4_000)
    rows = [batch(*[b"%d" % row for row in range(start, start + 6_000)]) for start in (0, 6_000)]
    with pytest.raises(RuntimeError):
        write(broker, *failing(rows[0]), delivery="idempotent")

    for _ in range(2):
        write(broker, *rows, delivery="idempotent")

    assert there(broker) == [b"%d" % row for row in range(12_000)]


def test_the_next_micro_batch_and_another_task_are_others(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    write(broker, batch(b"a"), delivery="idempotent")
    write(broker, batch(b"a"), partition=1, delivery="idempotent")
    write(broker, batch(b"a"), job=WriteJob(JOB.name, JOB.number + 1), delivery="idempotent")

    assert there(broker) == [b"a"] * 3


def test_at_least_once_writes_as_often_as_the_task_runs(
    broker: ThreadedBroker, line: BrokerLine
) -> None:
    for _ in range(2):
        write(broker, batch(b"a"), delivery="at_least_once")

    assert there(broker) == [b"a", b"a"]


def test_what_the_broker_refuses_ends_the_task(broker: ThreadedBroker) -> None:
    broker.create("out", max_message_bytes=3)

    for delivery in ("idempotent", "at_least_once"):
        with pytest.raises(flintmq.MessageTooLarge):
            write(broker, batch(b"abcd"), delivery=delivery)
    assert there(broker) == []

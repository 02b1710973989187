"""What both kinds of tables promise: each row once, columns that grow, partitions, few files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from flintmq.errors import InvalidRequest
from flintmq.pipeline.lake import delta, iceberg

from .tables import KINDS, Kind, LakeOfTest, some_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> LakeOfTest:
    kind: Kind = request.param
    return LakeOfTest(kind, tmp_path / "lake")


def test_a_batch_that_comes_again_is_written_once(spark: Any, lake: LakeOfTest) -> None:
    target = lake.target()
    target.check(some_rows(spark, range(4)))
    assert not lake.stored(), "a check writes nothing"
    target.write(some_rows(spark, range(4)), 0)
    target.write(some_rows(spark, range(4, 8)), 1)

    target.write(some_rows(spark, range(4, 8)), 1)
    another_driver = lake.target()
    another_driver.write(some_rows(spark, range(4, 8)), 1)
    another_driver.write(some_rows(spark, range(8, 10)), 2)
    lake.target("another flow").write(some_rows(spark, range(10, 12)), 0)

    assert lake.ids() == list(range(12))


def test_files_that_no_commit_has_are_no_rows_and_are_deleted_in_time(
    spark: Any, lake: LakeOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.target().write(some_rows(spark, range(4)), 0)
    killed = lake.target()

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(killed, "_commit", dies)
    with pytest.raises(KeyboardInterrupt):
        killed.write(some_rows(spark, range(4, 8)), 1)
    orphans = set(lake.stored()) - set(lake.files())
    assert orphans
    assert lake.ids() == list(range(4))
    for path in orphans:
        os.utime(path, (1_700_000_000, 1_700_000_000))

    lake.target(keep_seconds=7200.0).write(some_rows(spark, range(4, 8)), 1)

    assert lake.ids() == list(range(8))
    assert lake.stored() == lake.files(), "what is left belongs to the table"


def test_of_two_drivers_that_write_the_same_batch_at_once_one_does(
    spark: Any, lake: LakeOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.target().write(some_rows(spark, range(4)), 0)
    slow = lake.target()
    commit = slow._commit

    def late(*given: Any) -> None:
        lake.target().write(some_rows(spark, range(4, 8)), 1)
        commit(*given)

    monkeypatch.setattr(slow, "_commit", late)
    slow.write(some_rows(spark, range(4, 8)), 1)

    assert lake.ids() == list(range(8))


def test_another_writer_in_between_is_no_conflict(
    spark: Any, lake: LakeOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.target().write(some_rows(spark, range(4)), 0)
    target = lake.target()
    commit = target._commit

    def late(*given: Any) -> None:
        lake.target("another flow").write(some_rows(spark, range(8, 12)), 0)
        commit(*given)

    monkeypatch.setattr(target, "_commit", late)
    target.write(some_rows(spark, range(4, 8)), 1)

    assert lake.ids() == list(range(12))


def test_new_columns_are_added_and_missing_ones_are_null(spark: Any, lake: LakeOfTest) -> None:
    lake.target().write(some_rows(spark, [1]).selectExpr("id", "amount"), 0)
    lake.target().write(some_rows(spark, [2]).selectExpr("id", "region as Region"), 1)
    lake.target().write(some_rows(spark, [3]).selectExpr("cast(id as int) id", "'x' region"), 2)

    assert lake.rows() == [
        {"id": 1, "amount": 0.5, "Region": None},
        {"id": 2, "amount": None, "Region": "eu"},
        {"id": 3, "amount": None, "Region": "x"},
    ]


def test_rows_of_another_type_are_an_error_that_names_the_column(
    spark: Any, lake: LakeOfTest
) -> None:
    lake.target().write(some_rows(spark, range(2)), 0)
    wrong = some_rows(spark, range(2)).selectExpr("cast(id as double) id", "'much' amount")

    for attempt in (lake.target().check, lambda frame: lake.target().write(frame, 1)):
        with pytest.raises(InvalidRequest) as refused:
            attempt(wrong)
        assert str(refused.value) == (
            f"the table {lake.name} does not take these rows: column 'id': the table has bigint, "
            "and the rows have double; column 'amount': the table has double, and the rows have "
            "string. Cast in a step, or write to another table"
        )
    assert lake.ids() == [0, 1]


def test_partitions_are_columns_and_parts_of_times(spark: Any, lake: LakeOfTest) -> None:
    rows = some_rows(spark, range(12)).unionByName(
        some_rows(spark, [12]).selectExpr("id", "cast(null as string) region", "amount", "at")
    )
    lake.target(partition_by=["region", "day(at)"]).write(rows, 0)

    assert lake.ids() == list(range(13))
    assert [row["region"] for row in lake.rows()] == [*["eu", "us"] * 6, None]
    days = {str(row["at_day"] if lake.kind == "delta" else row["at"].date()) for row in lake.rows()}
    assert days == {"2023-11-14", "2023-11-15"}
    some = lake.files_with("region", "eu")
    assert 0 < len(some) < len(lake.files())
    with pytest.raises(
        InvalidRequest, match=r"is partitioned by region, .*, and the sink by region"
    ):
        lake.target(partition_by=["region"]).check(rows)


def test_small_files_are_merged_and_the_old_ones_deleted(
    spark: Any, lake: LakeOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "FILES_MAX", 6)
    monkeypatch.setattr(iceberg, "FILES_MAX", 6)
    target = lake.target(compact=True, partition_by=["region"])
    for number in range(3):
        target.write(some_rows(spark, range(4 * number, 4 * number + 4)), number)
    expected = lake.rows()

    assert len(lake.files()) == 2, "one for each region"
    assert [row["id"] for row in expected] == list(range(12))
    assert len(lake.stored()) > 2, "old versions can be read"
    target.write(some_rows(spark, [12]), 3)
    assert lake.ids() == list(range(13))

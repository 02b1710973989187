"""Tables and archives on a real S3 server: the same promises as on a disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from flintmq.errors import InvalidRequest
from flintmq.pipeline.lake import delta, iceberg
from flintmq.pipeline.lake.storage import ObjectPlaces, is_object_url
from flintmq.pipeline.run.archiving import into_directory
from flintmq.pipeline.run.object_archive import ObjectArchive

from .object_store import BUILD, VARIABLE, ObjectStore, program, serving
from .tables import KINDS, Kind, LakeOfTest, some_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    if program() is None:
        pytest.skip(
            f"NOTHING IN OBJECT STORAGE IS TESTED: its server is missing; run {BUILD!r}, or set "
            f"{VARIABLE}"
        )
    with serving(tmp_path_factory.mktemp("s3") / "data") as served:
        yield served


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_on_s3_has_each_row_once_and_few_files(
    spark: Any, kind: Kind, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "FILES_MAX", 6)
    monkeypatch.setattr(iceberg, "FILES_MAX", 6)
    lake = LakeOfTest(kind, tmp_path, store)
    lake.target(partition_by=["region"]).write(some_rows(spark, range(4)), 0)
    slow = lake.target(partition_by=["region"])
    commit = slow._commit

    def late(*given: Any) -> None:
        lake.target(partition_by=["region"]).write(some_rows(spark, range(4, 8)), 1)
        commit(*given)

    monkeypatch.setattr(slow, "_commit", late)
    slow.write(some_rows(spark, range(4, 8)), 1)
    assert lake.ids() == list(range(8))

    tidy = lake.target(partition_by=["region"], compact=True, keep_seconds=7200.0)
    tidy.write(some_rows(spark, range(8, 12)), 2)

    assert lake.ids() == list(range(12))
    assert len(lake.files()) == 2, "one for each region"


def test_a_table_that_may_not_be_read_is_one_sentence(spark: Any, store: ObjectStore) -> None:
    store.bucket("closed")
    options = {**store.of_delta, "aws_secret_access_key": "another"}

    with pytest.raises(InvalidRequest, match=r"the table s3://closed/orders cannot be opened: "):
        delta.DeltaTarget("s3://closed/orders", application="a", options=options).check(
            some_rows(spark, [1])
        )


def test_an_archive_on_s3_has_each_row_once_whenever_it_is_killed(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.bucket("files")
    places = ObjectPlaces("s3://files/orders", store.of_delta)

    def archive() -> ObjectArchive:
        return ObjectArchive(
            places, owner="query", partition_by=["region"], compact=True, files_max=4
        )

    archive().write(some_rows(spark, range(4)), 0)
    stored, done = ObjectArchive._store, ObjectArchive._do

    def dies_with_the_intent(self: ObjectArchive, change: Any) -> None:
        stored(self, change)
        raise KeyboardInterrupt

    def dies_after_the_moves(self: ObjectArchive, change: Any) -> None:
        monkeypatch.setattr(ObjectArchive, "_store", lambda *_: dies())
        done(self, change)

    def dies() -> None:
        raise KeyboardInterrupt

    deaths = (("_store", dies_with_the_intent), ("_do", dies_after_the_moves))
    for number, (step, death) in enumerate(deaths, 1):
        batch = range(4 * number, 4 * number + 4)
        monkeypatch.setattr(ObjectArchive, step, death)
        with pytest.raises(KeyboardInterrupt):
            archive().write(some_rows(spark, batch), number)
        monkeypatch.setattr(ObjectArchive, "_store", stored)
        monkeypatch.setattr(ObjectArchive, "_do", done)
        archive().write(some_rows(spark, batch), number)

    found = store.directory / "files" / "orders"
    import pyarrow.dataset as dataset

    rows = dataset.dataset(found, partitioning="hive").to_table().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(12))
    assert {row["region"] for row in rows} == {"eu", "us"}
    assert len(list(found.rglob("*.parquet"))) < 12, "some are merged"
    intent = store.directory / "files" / ".orders.flintmq" / "query.json"
    assert json.loads(intent.read_text())["moves"] == []


def test_what_cannot_go_to_object_storage_is_refused() -> None:
    assert is_object_url("s3://a/b")
    assert not is_object_url("file:///a/b")
    assert not is_object_url("./a")
    with pytest.raises(InvalidRequest, match="json cannot go to object storage: use parquet"):
        into_directory("s3://a/b", format="json")
    with pytest.raises(InvalidRequest, match="unknown option 'codec': use compression"):
        into_directory("s3://a/b", options={"codec": "x"})

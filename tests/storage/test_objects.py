"""Segments in a directory of another disk, and on a real S3 server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.errors import InvalidRequest, MissingExtra, ObjectStorageFailed
from flintmq.serde.codec import Codec
from flintmq.storage import object_systems
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.inspect import verify
from flintmq.storage.objects import ObjectStores
from flintmq.testing import SimulatedObjects
from tests.pipeline.lake.object_store import BUILD, KEY, SECRET, VARIABLE, ObjectStore, program
from tests.pipeline.lake.object_store import serving as serving_objects
from tests.storage import tier_kill_rounds

VALUES = [b"value %d " % number * 20 for number in range(2000)]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Client]:
    broker = durable_broker(LocalFileSystem(directory), decoder=Codec())
    async with Client(broker, Codec(), auto_create=True, timeout=60) as mq:
        yield mq


async def tier(mq: Client) -> None:
    kept = mq._broker.host.kept[0]  # type: ignore[attr-defined]
    for _ in range(2):
        await kept.checkpoints.checkpoint()
        await kept.tiering.settled()


async def read_all(mq: Client, topic: str = "orders") -> list[bytes]:
    found: list[bytes] = []
    async with mq.reader(topic) as reader:
        while rows := await reader.read_batch(10_000, timeout=0):
            found += map(bytes, rows.values)
    return found


async def there_and_back(directory: Path, url: str) -> None:
    """Everything leaves the disk; readers, groups and the next process get it from there."""
    async with opened(directory) as mq:
        await mq.create_topic("orders", tier=url, local_retention_bytes=1)
        for start in range(0, len(VALUES), 500):
            await mq.publish_batch("orders", VALUES[start : start + 500], priority=start // 500)
            await tier(mq)
        assert await read_all(mq) == VALUES
    assert list((directory / "segments").iterdir()) == []
    assert verify(LocalFileSystem(directory)) == []
    async with opened(directory) as mq:
        assert await read_all(mq) == VALUES
        found = await mq.poll("orders", "billing", max=10, ack="auto")
        assert bytes(found[0].value) == VALUES[1500], "the priorities are known"


async def test_a_directory_of_another_disk_needs_no_extra(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/far away"
    await there_and_back(tmp_path / "data", url)
    async with opened(tmp_path / "data") as mq:
        await mq.delete_topic("orders")
        await tier(mq)
    assert [path for path in (tmp_path / "far away").rglob("*") if path.is_file()] == []


def test_what_is_no_place_for_objects_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = ObjectStores().check
    for url, text in (
        ("s3:///prefix", "names a bucket"),
        ("file://host/path", "'file:///path'"),
        ("s3://bucket/a?b", r"without \? and #"),
        ("nonsense://a/b", "nonsense://a/b: "),
    ):
        with pytest.raises(InvalidRequest, match=text):
            check(url)

    def missing(*_: object) -> object:
        raise MissingExtra("storage at s3://", "tier")

    monkeypatch.setattr(object_systems, "extra_module", missing)
    with pytest.raises(MissingExtra, match=r"flintmq\[tier\]|\.\[tier\]"):
        check("s3://bucket/prefix")


def test_a_missing_object_says_so(tmp_path: Path) -> None:
    with pytest.raises(ObjectStorageFailed, match=r"cannot read the object file:///.*restore it"):
        ObjectStores().open(f"file://{tmp_path}/none.seg")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    if program() is None:
        pytest.skip(f"NO SEGMENT ON S3 IS TESTED: its server is missing; {BUILD!r}, or {VARIABLE}")
    pytest.importorskip("pyarrow")
    with serving_objects(tmp_path / "s3") as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield served


@pytest.mark.slow
async def test_partitions_and_names_of_any_letters_on_a_real_s3_server(
    tmp_path: Path, store: ObjectStore
) -> None:
    url = f"s3://{store.bucket('tier')}"
    async with opened(tmp_path / "data") as mq:
        await mq.create_topic("größe 1%2F..", partitions=2, tier=url, local_retention_bytes=1)
        keys: list[str | bytes | None] = [str(number) for number in range(200)]
        await mq.publish_batch("größe 1%2F..", VALUES[:200], key=keys)
        await tier(mq)
        assert list((tmp_path / "data" / "segments").iterdir()) == []
        assert sorted(await read_all(mq, "größe 1%2F..")) == sorted(VALUES[:200])
        await mq.delete_topic("größe 1%2F..")
        await tier(mq)
    assert [path for path in (store.directory / "tier").rglob("*") if path.is_file()] == []


@pytest.mark.slow
async def test_on_a_real_s3_server(tmp_path: Path, store: ObjectStore) -> None:
    await there_and_back(tmp_path / "data", f"s3://{store.bucket('tier')}/prefix")
    objects = [path for path in (store.directory / "tier").rglob("*.seg") if path.is_file()]
    assert len(objects) == 4
    objects[0].unlink()
    (problem,) = verify(LocalFileSystem(tmp_path / "data"))
    assert problem.file.endswith(objects[0].name)


async def test_a_group_and_a_reader_wait_out_a_store_that_fails_and_pass_over_nothing(
    tmp_path: Path,
) -> None:
    objects = SimulatedObjects()
    broker = durable_broker(LocalFileSystem(tmp_path), decoder=Codec(), objects=objects)
    async with Client(broker, Codec(), auto_create=True, timeout=60) as mq:
        await mq.create_topic("orders", tier="s3://b/t", local_retention_bytes=1)
        await mq.publish_batch("orders", VALUES[:300])
        await tier(mq)
        assert list((tmp_path / "segments").iterdir()) == []
        broker.host.kept[0].store.forget(next(iter(objects.stored)))
        objects.fail("read", times=8)
        found: list[bytes] = []
        failures = 0
        async with mq.reader("orders") as reader:
            while len(found) < 300:
                try:
                    found += map(bytes, (await reader.read_batch(100, timeout=1)).values)
                except ObjectStorageFailed:
                    failures += 1
        assert found == VALUES[:300]
        assert failures

        broker.host.kept[0].store.forget(next(iter(objects.stored)))
        objects.fail("read", times=8)
        taken, failures = list[bytes](), 0
        while len(taken) < 300:
            try:
                messages = await mq.poll("orders", "billing", max=70, wait=1.0, ack="auto")
                taken += [bytes(message.value) for message in messages]
            except ObjectStorageFailed:
                failures += 1
        assert taken == VALUES[:300]
        assert failures
        assert (await mq.group_stats("orders", "billing")).lag == 0


async def test_a_broker_starts_without_its_store_and_serves_what_is_here(tmp_path: Path) -> None:
    objects = SimulatedObjects()

    @asynccontextmanager
    async def started() -> AsyncIterator[Client]:
        broker = durable_broker(LocalFileSystem(tmp_path), decoder=Codec(), objects=objects)
        async with Client(broker, Codec(), auto_create=True, timeout=60) as mq:
            yield mq

    async with started() as mq:
        await mq.create_topic(
            "orders", tier="s3://b/t", local_retention_bytes=1, retention_age=3600, ttl=7200
        )
        await mq.publish_batch("orders", VALUES[:300], priority=3)
        await mq.poll("orders", "billing", max=5)
        await tier(mq)
        await mq.publish_batch("orders", VALUES[300:310])
    objects.fail("read", times=1 << 30)
    objects.fail("write", times=1 << 30)

    async with started() as mq:
        assert (await mq.topic_stats("orders")).message_count == 310
        assert (await mq.group_stats("orders", "billing")).lag == 310
        async with mq.reader("orders", start=300) as reader:
            rows = await reader.read_batch(10, timeout=1)
            assert [bytes(value) for value in rows.values] == VALUES[300:310]
        await mq.publish("orders", b"more")
        with pytest.raises(ObjectStorageFailed):
            await mq.poll("orders", "billing", max=5, wait=1.0)


@pytest.mark.slow
def test_what_is_killed_while_segments_are_uploaded_costs_no_message_and_leaves_no_object(
    tmp_path: Path, store: ObjectStore
) -> None:
    """Once here; tier_kill_rounds does it as often as wanted."""
    del store  # it is there, and the environment is put back behind us
    outcome = tier_kill_rounds.run(tmp_path / "killed", rounds=1, seed=3)
    assert outcome["objects"] > 0

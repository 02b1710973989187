"""A checkpoint of another node is put in place in one step, whenever the power fails."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from flintmq.cluster.receiving import (
    ASIDE,
    aside_name,
    clear_aside,
    make_aside,
    put_in_place,
    verify,
)
from flintmq.cluster.ship_frames import ShipList
from flintmq.errors import Corrupt
from flintmq.storage.filesystem import read_file
from flintmq.storage.manifest import read_manifest
from flintmq.testing import Crashed, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Keep

from ..engine.stepping import OWN_SEGMENT_BYTES, Life, small_sizes


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


async def a_directory(*topics: str, rounds: int) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    life = await Life(disk).open()
    for topic in topics:
        await life.run(life.broker.create_topic(topic, {}))
    for number in range(rounds):
        for topic in topics:
            await life.publish(topic, b"%s %d" % (topic.encode(), number))
        await life.publish(topics[0], bytes(OWN_SEGMENT_BYTES))
        await life.run(life.broker.host.checkpoint())
    await life.run(life.broker.close())
    return disk


async def shipped() -> tuple[ShipList, dict[str, bytes]]:
    """The checkpoint of a node that is far ahead: its list, and its files."""
    disk = await a_directory("orders", "parts", "new", rounds=5)
    manifest = read_manifest(disk)
    assert manifest is not None
    files = {name: read_file(disk, name) for name in sorted(manifest.files())}
    assert len(files) > 2
    return ShipList(manifest, [(name, len(data)) for name, data in files.items()]), files


def take(life: Life, listed: ShipList, files: dict[str, bytes]) -> None:
    kept = life.broker.host.kept[0]
    make_aside(life.disk)
    for number, data in enumerate(files.values(), 1):
        file = life.disk.create(aside_name(number))
        file.pwritev([data], 0)
        file.sync_all()
        file.close()
        verify(life.disk, aside_name(number))
    put_in_place(kept, listed, kept.position_behind(listed.manifest.checkpoint))
    kept.checkpoints.forget_obsolete()
    kept.checkpoints.remove_litter()
    clear_aside(life.disk)


async def contents(disk: SimulatedFileSystem) -> dict[str, list[tuple[int, bytes]]]:
    """What a start finds; and it can go on, and start again."""
    life = await Life(disk).open()
    found = {name: life.messages(name) for name in sorted(life.broker.shard.topics)}
    await life.publish("orders", b"one more")
    await life.run(life.broker.close())
    life = await Life(disk).open()
    again = {name: life.messages(name) for name in sorted(life.broker.shard.topics)}
    assert [value for _, value in again["orders"]][-1] == b"one more"
    assert again["orders"][:-1] == found["orders"]
    clear_aside(disk)
    names = read_manifest(disk)
    assert names is not None
    assert set(life.segments()) == names.files()
    await life.run(life.broker.close())
    return found


KEPT: list[Keep] = ["nothing", "everything", Random(1), Random(2)]


@pytest.mark.slow
@pytest.mark.parametrize("keep", KEPT, ids=["nothing", "everything", "some", "others"])
async def test_a_power_cut_at_any_step_leaves_the_old_or_the_new(keep: Keep) -> None:
    listed, files = await shipped()
    old = await contents(await a_directory("orders", "gone", rounds=1))
    seen = []
    steps = 0
    while True:
        disk = await a_directory("orders", "gone", rounds=1)
        life = await Life(disk).open()
        disk.stop_after(steps)
        try:
            take(life, listed, files)
        except Crashed:
            pass
        else:
            break
        found = await contents(disk.crash(keep))
        is_old = found == old
        assert is_old or list(found) == ["new", "orders", "parts"]
        assert is_old or [value for _, value in found["new"]] == [b"new %d" % n for n in range(5)]
        seen.append(is_old)
        steps += 1

    assert steps > 20
    assert seen == sorted(seen, reverse=True), "once it is the new one, it stays so"
    assert not seen[-1]
    assert seen[0]
    assert not life.disk.exists(ASIDE)


async def test_what_does_not_match_its_checksums_is_refused() -> None:
    _, files = await shipped()
    disk = SimulatedFileSystem()
    make_aside(disk)
    file = disk.create(aside_name(1))
    data = next(iter(files.values()))
    file.pwritev([data[:30] + b"?" + data[31:]], 0)
    file.close()
    with pytest.raises(Corrupt):
        verify(disk, aside_name(1))

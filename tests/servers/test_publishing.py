"""What a broker keeps of a frame that a producer sent."""

from __future__ import annotations

from flintmq.batch import BatchBuilder
from flintmq.net.server.publishing import BESIDE_BYTES_MAX, checked_batch


def encoded(size: int) -> bytes:
    rows = BatchBuilder()
    rows.append(b"x" * size)
    return rows.seal(producer="one").encode()


def kept(received: bytes, batch: bytes) -> object:
    """What stays in memory for a batch that came at the end of what was received."""
    found = checked_batch(memoryview(received)[-len(batch) :])
    assert found.values() == (b"x" * 10_000,)
    assert isinstance(found.body, memoryview)
    return found.body.obj


def test_a_batch_that_came_alone_is_not_copied() -> None:
    batch = encoded(10_000)
    received = bytes(BESIDE_BYTES_MAX) + batch

    assert kept(received, batch) is received


def test_a_batch_does_not_keep_alive_what_came_together_with_it() -> None:
    batch = encoded(10_000)
    received = bytes(BESIDE_BYTES_MAX + 1) + batch

    assert kept(received, batch) == batch

"""Checksums of whole columns are those of the library, string by string."""

from __future__ import annotations

import random

import pytest

from flintmq.batch.checksum import crc32c

pa = pytest.importorskip("pyarrow")

from flintmq.batch.arrow_checksums import LENGTH_MAX, ROWS_MIN, checksums  # noqa: E402
from flintmq.batch.format import key_hash  # noqa: E402
from flintmq.batch.from_arrow import key_hashes  # noqa: E402


def strings(lengths: list[int], seed: int = 1) -> list[bytes]:
    dice = random.Random(seed)
    return [dice.randbytes(length) for length in lengths]


def summed(items: list[bytes]) -> list[int]:
    ends = [0]
    for item in items:
        ends.append(ends[-1] + len(item))
    sums: list[int] = checksums(pa.array(ends, pa.int32()), b"".join(items)).to_pylist()
    return sums


@pytest.mark.parametrize(
    "lengths",
    [
        [8] * 200,
        [36] * ROWS_MIN,
        [0] * 100,
        [0, 1, 2, 3, LENGTH_MAX] * 40,
        [LENGTH_MAX + 1, 3] * 60,
        [5] * (ROWS_MIN - 1),
        [*range(LENGTH_MAX + 1)] * 2,
    ],
    ids=["alike", "at the least", "empty", "mixed", "too long", "too few", "all lengths"],
)
def test_each_string_has_the_checksum_that_the_library_gives(lengths: list[int]) -> None:
    items = strings(lengths)

    assert summed(items) == [crc32c(item) for item in items]


def test_keys_of_many_rows_hash_as_single_ones_do_also_where_some_have_none() -> None:
    keys = [None if row % 7 == 3 else b"key-%d" % row**2 for row in range(500)]
    column = pa.array([b"not this one", *keys], pa.binary()).slice(1)

    assert key_hashes(column).to_pylist() == [0 if key is None else key_hash(key) for key in keys]

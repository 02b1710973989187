"""The key hash routes and orders by key, so it can never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.batch import BatchBuilder, key_hash

GOLDEN: dict[str | bytes, int] = {
    "": 1,
    b"": 1,
    "a": 4008768297,
    b"a": 4008768297,
    "42": 1920025367,
    "user-1": 1144721187,
    b"user-1": 1144721187,
    "orders/7": 795036125,
    "größer": 2823796530,
    b"\x00": 3864898323,
    b"\xff\xfe": 145012908,
    "a" * 1000: 1724466684,
}


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_the_hash_of_a_key_is_the_same_in_every_process_and_version(
    key: str | bytes, expected: int
) -> None:
    assert key_hash(key) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_and_its_utf8_bytes_have_the_same_hash(key: str) -> None:
    assert key_hash(key) == key_hash(key.encode())


@given(st.binary(max_size=64))
def test_a_hash_is_a_u32_and_never_zero(key: bytes) -> None:
    assert 0 < key_hash(key) < 2**32


def test_a_key_whose_checksum_is_zero_still_has_a_hash() -> None:
    # The checksum of nothing is 0, and 0 times anything is 0: the empty key takes the 1.
    assert key_hash("") == key_hash(b"") == 1


def test_a_batch_holds_the_hash_of_each_key_and_zero_for_none() -> None:
    builder = BatchBuilder()
    builder.append(b"no key")
    builder.append_row(b"with key", key="user-1")
    batch = builder.seal()

    assert [builder.key_hash(row) for row in range(2)] == [0, key_hash("user-1")]
    assert [batch.key_hash(row) for row in range(2)] == [0, key_hash("user-1")]


def test_a_batch_without_keys_has_no_hashes() -> None:
    assert BatchBuilder.of([b"a"]).seal().key_hash(0) == 0


def test_neighbouring_keys_spread_evenly_over_partitions() -> None:
    counts = [0] * 8
    for number in range(8_000):
        counts[key_hash(f"user-{number}") * 8 >> 32] += 1

    assert min(counts) > 800
    assert max(counts) < 1_200

"""Nothing is decoded that nobody reads, and what was decoded is kept within a bound."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from flintmq import __compiled__
from flintmq.batch import BatchBuilder, DecodeCache, RecordBatch
from flintmq.batch import compression as compression_module
from flintmq.batch import record_batch as module
from flintmq.errors import MissingExtra
from flintmq.installing import remedy
from flintmq.rows import Origin, Rows, Run
from tests.batch.samples import EVERY_COLUMN, NOW, Row, built, every_column, look_at_everything

HERE = Origin("here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a batch opened a payload, looked for its columns, or took values out of them."""
    if __compiled__:
        pytest.skip("NOT TESTED COMPILED: calls between compiled functions cannot be counted")
    counted: Counter[str] = Counter()

    def count(name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def counting(*arguments: Any) -> Any:
            counted[name] += 1
            return real(*arguments)

        monkeypatch.setattr(module, name, counting)

    for name in ("decompress_payload", "walk", "unpack_equal", "split", "item_at", "text_or_bytes"):
        count(name)
    return counted


def batch_of(count: int, width: int = 100, compression: str = "none") -> RecordBatch:
    builder = BatchBuilder.of([index.to_bytes(4, "big") * (width // 4) for index in range(count)])
    batch = builder.seal(compression=compression)
    batch.stamp(0, NOW)
    return batch


def uneven_batch(count: int) -> RecordBatch:
    return BatchBuilder.of([bytes(index % 7) for index in range(count)]).seal()


def rows_over(batch: RecordBatch) -> Rows:
    return Rows([Run(batch, 0, batch.row_count, HERE)])


# --- nothing before it is asked for


def test_decoding_copies_no_body_and_builds_nothing_per_row() -> None:
    data = batch_of(10_000).encode()

    tracemalloc.start()
    batch = RecordBatch.decode(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(batch.body, memoryview)
    assert batch.body.obj is data
    assert peak < 10_000


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_the_control_section_is_read_without_looking_at_the_payload(
    calls: Counter[str], compression: str
) -> None:
    batch = RecordBatch.decode(every_column(compression).encode())

    assert not batch.is_plain
    assert batch.producer == "producer-1"
    for row, expected in enumerate(EVERY_COLUMN):
        assert batch.priority(row) == expected.priority
        assert batch.expiry(row) == expected.expiry
        assert batch.deliver_at(row) == expected.deliver_at
        assert bool(batch.key_hash(row)) == (expected.key is not None)
    assert not calls


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_payload_is_opened_only_when_looked_at_and_then_once(
    calls: Counter[str], compression: str
) -> None:
    batch = RecordBatch.decode(every_column(compression).encode())
    batch.stamp(7, NOW)
    batch.size(0, 3)
    batch.encode()
    assert not calls

    look_at_everything(batch)
    opened = calls["decompress_payload"]
    batch.key(0)
    batch.headers(3)
    batch.time(1)

    assert opened == 2  # look_at_everything forgets once, between its two passes
    assert calls["decompress_payload"] == opened


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_metadata_decodes_no_value_key_or_header(calls: Counter[str], compression: str) -> None:
    rows = [Row(b"v" * index, key="k", headers={"a": "b"}, priority=3) for index in range(50)]
    batch = built(rows).seal(compression=compression)
    batch.stamp(100, NOW)

    metadata = rows_over(batch).metadata

    assert [item.offset for item in metadata] == list(range(100, 150))
    assert {item.priority for item in metadata} == {3}
    assert {item.timestamp for item in metadata} == {NOW / 1000}
    for name in ("decompress_payload", "unpack_equal", "split", "item_at", "text_or_bytes"):
        assert calls[name] == 0


def test_messages_that_nobody_looks_into_decode_nothing(calls: Counter[str]) -> None:
    rows = rows_over(batch_of(1_000, compression="lz4"))

    assert len(rows) == 1_000
    assert sum(1 for _ in rows) == 1_000
    assert [message.offset for message in rows][-1] == 999
    assert {message.timestamp for message in rows} == {NOW / 1000}
    assert not calls


def test_message_objects_are_made_one_at_a_time() -> None:
    rows = rows_over(batch_of(1_000))

    tracemalloc.start()
    count = sum(1 for _ in rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 1_000
    assert peak < 10_000


def test_reading_values_looks_at_no_key_and_no_header(calls: Counter[str]) -> None:
    batch = RecordBatch.decode(every_column().encode())

    assert list(rows_over(batch).values) == [row.value for row in EVERY_COLUMN]
    assert calls["text_or_bytes"] == calls["item_at"] == 0


def test_one_value_of_many_is_taken_out_alone(calls: Counter[str]) -> None:
    batch = uneven_batch(1_000)

    assert batch.value(500) == bytes(500 % 7)
    assert calls["item_at"] == 1
    assert calls["split"] == calls["unpack_equal"] == 0


def test_who_goes_row_by_row_has_all_values_decoded_in_one_go(calls: Counter[str]) -> None:
    batch = uneven_batch(1_000)

    assert [batch.value(row) for row in range(1_000)] == [bytes(row % 7) for row in range(1_000)]
    assert calls["split"] == 1
    assert calls["item_at"] == 1


def test_a_large_batch_is_not_decoded_whole_for_one_who_goes_row_by_row(
    calls: Counter[str],
) -> None:
    batch = batch_of(20, width=100_000)

    for row in range(20):
        assert len(batch.value(row)) == 100_000
    assert calls["item_at"] == 20
    assert calls["split"] == calls["unpack_equal"] == 0


# --- what is not in the core


def test_importing_the_batch_and_its_arrow_view_imports_no_extra() -> None:
    code = "import sys, flintmq, flintmq.batch, flintmq.arrow; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert "flintmq.arrow" in imported
    assert not imported & {"pyarrow", "lz4", "lz4.block", "backports.zstd", "compression.zstd"}


@pytest.mark.parametrize(
    ("compression", "modules"),
    [("lz4", ["lz4.block"]), ("zstd", ["backports.zstd", "compression.zstd"])],
)
def test_without_its_library_a_compressed_batch_still_shows_its_control_section(
    monkeypatch: pytest.MonkeyPatch, compression: str, modules: list[str]
) -> None:
    data = every_column(compression).encode()
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    compression_module._codec.cache_clear()
    try:
        batch = RecordBatch.decode(data)
        assert batch.priority(3) == 7
        assert batch.encode() == data
        with pytest.raises(MissingExtra, match=re.escape(remedy("compression"))):
            batch.value(0)
        with pytest.raises(MissingExtra, match=compression):
            BatchBuilder.of([b"a"]).seal(compression=compression)
    finally:
        compression_module._codec.cache_clear()


# --- the decode cache


def cached(cache: DecodeCache, batch: RecordBatch) -> RecordBatch:
    batch.cache = cache
    return batch


def is_kept(batch: RecordBatch) -> bool:
    """Values that are kept are the same objects the next time."""
    return batch.values() is batch.values()


def test_readers_share_what_one_of_them_decoded(calls: Counter[str]) -> None:
    batch = cached(DecodeCache(1 << 20), uneven_batch(100))

    first = rows_over(batch).values
    for _ in range(3):
        assert all(a is b for a, b in zip(rows_over(batch).values, first, strict=True))
        assert batch.value(5) is first[5]
        assert list(batch.values(2, 4)) == first[2:4]
    assert calls["split"] == 1


def test_the_cache_stays_within_its_bound_and_forgets_the_oldest(calls: Counter[str]) -> None:
    cache = DecodeCache(64 * 1024)
    batches = [cached(cache, batch_of(100)) for _ in range(20)]

    for batch in batches:
        batch.values()
        assert cache.byte_count <= 64 * 1024
    decoded = calls["unpack_equal"]
    batches[-1].values()
    assert calls["unpack_equal"] == decoded
    batches[0].values()
    assert calls["unpack_equal"] == decoded + 1


def test_what_the_cache_counts_is_what_decoded_values_take() -> None:
    cache = DecodeCache(1 << 20)
    batches = [cached(cache, batch_of(100)) for _ in range(200)]
    batches[0].values()  # the format string it is unpacked by is made once

    tracemalloc.start()
    for batch in batches:
        batch.values()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert cache.byte_count <= 1 << 20
    assert kept < 1.25 * (1 << 20)


def test_a_part_of_a_batch_is_not_kept() -> None:
    cache = DecodeCache(1 << 20)
    batch = cached(cache, uneven_batch(100))

    batch.values(0, 99)

    assert cache.byte_count == 0


def test_keeping_a_batch_again_does_not_count_it_twice() -> None:
    cache = DecodeCache(1 << 20)
    batch = cached(cache, uneven_batch(100))
    batch.values()
    once = cache.byte_count

    batch.forget()
    batch.values()

    assert cache.byte_count == once > 0


def test_a_batch_too_large_for_the_cache_is_read_and_not_kept() -> None:
    cache = DecodeCache(1_000)
    batch = cached(cache, batch_of(100))

    assert len(batch.values()) == 100
    assert not is_kept(batch)
    assert cache.byte_count == 0


def test_a_batch_too_large_for_the_cache_is_not_decoded_anew_for_every_row(
    calls: Counter[str],
) -> None:
    batch = cached(DecodeCache(1_000), batch_of(100))

    assert [batch.value(row)[:4] for row in range(100)] == [
        row.to_bytes(4, "big") for row in range(100)
    ]
    assert calls["unpack_equal"] == 0
    assert calls["item_at"] == 100


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_opened_payloads_are_bounded_whatever_was_read_of_them(compression: str) -> None:
    cache = DecodeCache(1 << 20)
    batches = [cached(cache, batch_of(1_000, compression=compression)) for _ in range(50)]
    batches[0].value(0)

    tracemalloc.start()
    for batch in batches:
        batch.value(500)
        batch.values(10, 20)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0 < cache.byte_count <= 1 << 20
    assert kept < 1.25 * (1 << 20)


def test_a_payload_that_was_forgotten_is_opened_again(calls: Counter[str]) -> None:
    cache = DecodeCache(150_000)
    first, second = (cached(cache, batch_of(1_000, compression="lz4")) for _ in range(2))

    for batch in (first, first, second, first):
        assert batch.value(7)[:4] == (7).to_bytes(4, "big")

    assert calls["decompress_payload"] == 3


def test_the_payload_being_read_stays_open_though_it_is_over_the_bound(
    calls: Counter[str],
) -> None:
    batch = cached(DecodeCache(1_000), batch_of(1_000, compression="zstd"))

    for row in range(1_000):
        batch.value(row)

    assert calls["decompress_payload"] == 1

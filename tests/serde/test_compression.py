"""Compression of single messages: every level comes back, and nothing grows beyond its limit."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import InvalidRequest, MissingExtra
from flintmq.serde.compression import BadCompression, decompress, parse_compression

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

KIB, MIB = 1024, 1024 * 1024
NAMES = ("gzip", "zstd", "lz4")
LEVELS = [
    *(f"gzip:{level}" for level in range(10)),
    *(f"zstd:{level}" for level in (-7, -1, 0, 1, 3, 9, 19, 22)),
    *(f"lz4:{level}" for level in (0, 1, 3, 9, 12, 16)),
]
SAMPLES = (b"", b"x", bytes(range(256)) * 40, b"flint " * 20_000)


def compressed(name: str, data: bytes) -> bytes:
    return parse_compression(name).compress(data)


def peak_of(call: Callable[[], object]) -> int:
    """The most memory that Python and its libraries had in use during a call that is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(BadCompression):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- there and back


@pytest.mark.parametrize("text", [*NAMES, *LEVELS])
def test_every_compression_comes_back_at_every_level(text: str) -> None:
    name = text.partition(":")[0]
    for sample in SAMPLES:
        assert decompress(name, compressed(text, sample), len(sample) or 1) == sample


@given(data=st.binary(max_size=200_000), name=st.sampled_from(NAMES))
@settings(max_examples=60, deadline=None)
def test_any_bytes_come_back(data: bytes, name: str) -> None:
    assert decompress(name, compressed(name, data), len(data) or 1) == data


def test_no_compression_leaves_bytes_as_they_are() -> None:
    assert compressed("none", b"as it is") == b"as it is"
    assert decompress("none", b"as it is", 1) == b"as it is"


def test_others_can_read_what_we_compress() -> None:
    data = b"for everybody" * 100

    assert gzip.decompress(compressed("gzip", data)) == data
    assert zstd.decompress(compressed("zstd", data)) == data
    assert lz4.frame.decompress(compressed("lz4", data)) == data


@pytest.mark.slow
def test_what_others_compress_piece_by_piece_is_read() -> None:
    data = b"from somebody else " * 10_000
    compressor = zstd.ZstdCompressor(level=19)
    streamed = compressor.compress(data[:50_000]) + compressor.compress(data[50_000:])

    assert decompress("zstd", streamed + compressor.flush(), len(data)) == data
    assert decompress("gzip", gzip.compress(data), len(data)) == data
    unsized = lz4.frame.compress(data, store_size=False, content_checksum=True)
    assert decompress("lz4", unsized, len(data)) == data


@pytest.mark.parametrize("name", NAMES)
def test_equal_bytes_compress_to_equal_bytes(name: str) -> None:
    assert compressed(name, b"same" * 100) == compressed(name, b"same" * 100)


# --- names


@pytest.mark.parametrize(
    "text",
    ["", "brotli", "GZIP", "gzip ", "none:1", "gzip:", "gzip:10", "gzip:-1", "zstd:23", "zstd:-8",
     "lz4:17", "zstd:x", "zstd:1_0", "zstd: 9", "gzip:+3", "lz4:\u0663", "zstd:3:4", "zstd:3.0"],
)  # fmt: skip
def test_unknown_compressions_and_levels_are_errors(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_compression(text)
    assert "gzip" in str(refused.value) or "levels" in str(refused.value)


@pytest.mark.parametrize("thing", [None, 6, b"gzip", ["gzip"], ("gzip", 6)])
def test_a_compression_is_named_by_text(thing: object) -> None:
    with pytest.raises(InvalidRequest):
        parse_compression(thing)  # type: ignore[arg-type]


def test_an_unknown_compression_does_not_decompress() -> None:
    with pytest.raises(BadCompression, match="brotli"):
        decompress("brotli", b"", 100)


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_a_missing_library_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: ModuleType | None = None
    for module in ("compression.zstd", "backports.zstd", "lz4.frame"):
        monkeypatch.setitem(sys.modules, module, gone)
    with pytest.raises(MissingExtra, match=r"\[compression\]"):
        parse_compression(name)


# --- damage


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_end_early_or_late_are_damaged(name: str) -> None:
    whole = compressed(name, b"the whole of it " * 50)

    for cut in range(len(whole)):
        with pytest.raises(BadCompression):
            decompress(name, whole[:cut], MIB)
    for more in (b"x", b"\0", bytes(100), whole):
        with pytest.raises(BadCompression, match="does not end where the message ends"):
            decompress(name, whole + more, MIB)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_turned_bit_is_damage_or_the_same_length_never_a_crash(name: str) -> None:
    whole = compressed(name, bytes(range(256)) * 4)

    for bit in range(8 * len(whole)):
        turned = bytearray(whole)
        turned[bit // 8] ^= 1 << bit % 8
        try:
            output = decompress(name, bytes(turned), MIB)
        except BadCompression:
            continue
        assert len(output) <= MIB


@given(data=st.binary(max_size=300), name=st.sampled_from(NAMES), framed=st.booleans())
@settings(max_examples=400, deadline=None)
def test_random_bytes_are_damage(data: bytes, name: str, framed: bool) -> None:
    if framed:  # behind a true beginning the decoder gets further
        data = compressed(name, b"begin")[:7] + data
    with suppress(BadCompression):
        assert len(decompress(name, data, 64 * KIB)) <= 64 * KIB


# --- bombs


BOMB_BYTES = 32 * MIB


def _zstd_without_size() -> bytes:
    compressor = zstd.ZstdCompressor()
    return compressor.compress(bytes(BOMB_BYTES)) + compressor.flush()


BOMBS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "gzip": lambda: ("gzip", compressed("gzip", bytes(BOMB_BYTES))),
    "zstd": lambda: ("zstd", compressed("zstd", bytes(BOMB_BYTES))),
    "zstd without its size": lambda: ("zstd", _zstd_without_size()),
    "lz4": lambda: ("lz4", compressed("lz4", bytes(BOMB_BYTES))),
    "lz4 without its size": lambda: (
        "lz4",
        bytes(lz4.frame.compress(bytes(BOMB_BYTES), store_size=False)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("rest", ["", "and more behind it", "cut"])
def test_a_bomb_is_refused_before_it_is_there(kind: str, rest: str) -> None:
    name, bomb = BOMBS[kind]()
    bomb = bomb[:-20] if rest == "cut" else bomb + rest.encode()
    limit = 256 * KIB

    # What has come out, what it is joined into, and what was asked for next: not the 32 MiB.
    assert peak_of(lambda: decompress(name, bomb, limit)) < 4 * limit + 4 * len(bomb)


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_is_exact(name: str) -> None:
    data = compressed(name, bytes(100_000))

    assert len(decompress(name, data, 100_000)) == 100_000
    with pytest.raises(BadCompression, match="more than the 99,999 bytes allowed"):
        decompress(name, data, 99_999)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_message_takes_little_memory_whatever_the_limit(name: str) -> None:
    small = compressed(name, b"small")
    decompress(name, small, 100)

    tracemalloc.start()
    try:
        assert decompress(name, small, 1024 * MIB) == b"small"
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def _zstd_frame(window_log: int) -> bytes:
    """A frame of an empty raw block that wants a window of 2**window_log bytes."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + b"\x01\x00\x00"


@pytest.mark.parametrize("window_log", [27, 28, 30, 31, 36, 41])
def test_a_zstd_frame_that_wants_a_huge_window_is_refused(window_log: int) -> None:
    with pytest.raises(BadCompression, match="damaged zstd"):
        decompress("zstd", _zstd_frame(window_log), 64 * MIB)


@pytest.mark.parametrize("window_log", [10, 20, 23])
def test_a_zstd_frame_gets_the_window_that_every_decoder_grants(window_log: int) -> None:
    assert decompress("zstd", _zstd_frame(window_log), 10) == b""


def test_a_frame_that_claims_too_much_is_refused_by_its_claim() -> None:
    # zstd: single segment, eight bytes of content size
    claim = b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    assert peak_of(lambda: decompress("zstd", claim, MIB)) < MIB
    frame = bytearray(lz4.frame.compress(bytes(1000), store_size=True))
    frame[6:14] = (2**62).to_bytes(8, "little")
    assert peak_of(lambda: decompress("lz4", bytes(frame), MIB)) < MIB


def test_a_gzip_file_of_two_members_is_not_one_message() -> None:
    two = gzip.compress(b"one") + gzip.compress(b"two")
    with pytest.raises(BadCompression, match="does not end"):
        decompress("gzip", two, MIB)


def test_zlib_without_the_gzip_container_is_not_gzip() -> None:
    with pytest.raises(BadCompression, match="damaged gzip"):
        decompress("gzip", zlib.compress(b"data"), MIB)

"""Magic headers, byte for byte: what is written, what is found, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.batch.checksum import crc32c
from flintmq.serde.magic import BadHeader, Detected, add_header, check_header, detect

FORMATS = ("raw", "json", "msgpack", "text", "avro", "mine")
COMPRESSIONS = ("none", "gzip", "zstd", "lz4")
FINGERPRINT = "0123456789abcdef"

GOLDEN_FLINT = {
    ("json", "none", ""): "f5464d0101000000fedd6b527b7d",
    ("msgpack", "zstd", ""): "f5464d01020200007cc9f5167b7d",
    ("text", "lz4", ""): "f5464d0103030000c9cdd4c17b7d",
    ("avro", "gzip", FINGERPRINT): "f5464d0104011000f18cda6a303132333435363738396162636465667b7d",
    ("mine", "none", ""): "f5464d01ff000400738882556d696e657b7d",
    ("raw", "gzip", ""): "f5464d01000100004bd94a857b7d",
}
"""Their checksums come from another CRC32C, one that goes bit by bit."""

GOLDEN_TMQ = {
    ("json", "none"): b"TMQ\x01\x01\x00{}",
    ("json", "gzip"): b"TMQ\x01\x01\x01{}",
    ("json", "zstd"): b"TMQ\x01\x01\x02{}",
    ("msgpack", "none"): b"TMQ\x01\x02\x00{}",
    ("msgpack", "gzip"): b"TMQ\x01\x02\x01{}",
    ("msgpack", "zstd"): b"TMQ\x01\x02\x02{}",
}


def flint(version: int, format: int, compression: int, name: bytes, body: bytes) -> bytes:
    """A flint header made by hand, with a checksum that fits."""
    fixed = b"\xf5FM" + bytes([version, format, compression, len(name), 0])
    return fixed + crc32c(fixed + name + body).to_bytes(4, "little") + name + body


# --- flint


@pytest.mark.parametrize(("said", "golden"), GOLDEN_FLINT.items())
def test_the_flint_header_has_these_bytes(said: tuple[str, str, str], golden: str) -> None:
    format, compression, schema = said

    assert add_header("flint", format, compression, schema, b"{}").hex() == golden
    assert detect("flint", bytes.fromhex(golden)) == Detected(format, compression, schema, b"{}")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("body", [b"", b"x", b"\xf5FM", b"\xf5FM\x01\x00\x00\x00\x00", b"TMQ\x01"])
def test_whatever_a_flint_header_says_is_found(format: str, compression: str, body: bytes) -> None:
    schema = FINGERPRINT if format == "avro" else ""
    data = add_header("flint", format, compression, schema, body)

    found = detect("flint", data)

    if found is None:
        assert (format, compression) == ("raw", "none")
        assert data == body
    else:
        assert found == Detected(format, compression, schema, body)


def test_raw_bytes_are_bare_unless_they_look_like_a_header() -> None:
    assert add_header("flint", "raw", "none", "", b"as it is") == b"as it is"
    escaped = add_header("flint", "raw", "none", "", b"\xf5FM looks like one")
    assert escaped.startswith(b"\xf5FM\x01\x00\x00\x00\x00")
    assert detect("flint", escaped) == Detected("raw", "none", "", b"\xf5FM looks like one")
    twice = add_header("flint", "raw", "none", "", escaped)
    assert detect("flint", twice) == Detected("raw", "none", "", escaped)


@given(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda b: b"\xf5FM" + b)))
@settings(max_examples=300, deadline=None)
def test_no_raw_bytes_are_mistaken(body: bytes) -> None:
    data = add_header("flint", "raw", "none", "", body)
    found = detect("flint", data)
    assert (data if found is None else found.body) == body


def test_every_turned_bit_behind_the_magic_is_noticed() -> None:
    data = add_header("flint", "json", "gzip", "", b'{"id": 1}')

    for bit in range(24, 8 * len(data)):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadHeader):
            detect("flint", bytes(turned))


def test_a_flint_header_that_is_cut_is_refused() -> None:
    data = add_header("flint", "mine", "none", "", b"body")

    for cut in range(3, len(data)):
        with pytest.raises(BadHeader):
            detect("flint", data[:cut])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (flint(2, 1, 0, b"", b"{}"), "version 2"),
        (flint(0, 1, 0, b"", b"{}"), "version 0"),
        (flint(1, 77, 0, b"", b"{}"), "unknown format 77"),
        (flint(1, 1, 9, b"", b"{}"), "unknown compression 9"),
        (flint(1, 255, 0, b"\xff\xfe", b"{}"), "not UTF-8"),
    ],
)
def test_what_a_flint_header_cannot_say_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadHeader, match=why):
        detect("flint", data)


def test_a_name_that_is_longer_than_what_is_there_is_refused() -> None:
    fixed = b"\xf5FM\x01\xff\x00\x09\x00"
    with pytest.raises(BadHeader, match="inside the name"):
        detect("flint", fixed + crc32c(fixed + b"mine").to_bytes(4, "little") + b"mine")


def test_a_name_longer_than_its_length_byte_is_not_written() -> None:
    with pytest.raises(BadHeader, match="longer than 255"):
        add_header("flint", "x" * 256, "none", "", b"")


# --- tmq


@pytest.mark.parametrize(("said", "golden"), GOLDEN_TMQ.items())
def test_the_tmq_header_has_tokio_memqs_six_bytes(said: tuple[str, str], golden: bytes) -> None:
    format, compression = said

    assert add_header("tmq", format, compression, "", b"{}") == golden
    assert detect("tmq", golden) == Detected(format, compression, "", b"{}")


def test_raw_bytes_are_bare_on_a_tmq_topic_but_cannot_begin_like_its_header() -> None:
    assert add_header("tmq", "raw", "none", "", b"as it is") == b"as it is"
    assert detect("tmq", b"as it is") is None
    with pytest.raises(BadHeader, match="cannot be distinguished from a tmq header"):
        add_header("tmq", "raw", "none", "", b"TMQ...")


@pytest.mark.parametrize(
    ("format", "compression"),
    [("text", "none"), ("avro", "none"), ("mine", "none"), ("raw", "gzip"), ("json", "lz4"),
     ("msgpack", "lz4")],
)  # fmt: skip
def test_what_tokio_memq_could_not_read_is_not_written(format: str, compression: str) -> None:
    with pytest.raises(BadHeader, match=f"not {format} with {compression}"):
        check_header("tmq", format, compression)
    with pytest.raises(BadHeader, match="supports json and msgpack"):
        add_header("tmq", format, compression, "", b"")
    check_header("flint", format, compression)


@pytest.mark.parametrize("compression", [0, 1, 2])
def test_bincode_is_an_error_that_says_so(compression: int) -> None:
    with pytest.raises(BadHeader, match="bincode"):
        detect("tmq", b"TMQ\x01\x00" + bytes([compression]) + b"body")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"TMQ\x02\x01\x00{}", "version 2"),
        (b"TMQ\x00\x01\x00{}", "version 0"),
        (b"TMQ\x01\x03\x00{}", "unknown format 3"),
        (b"TMQ\x01\xff\x00{}", "unknown format 255"),
        (b"TMQ\x01\x01\x03{}", "unknown compression 3"),
    ],
)
def test_a_tmq_header_that_says_something_unknown_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadHeader, match=why):
        detect("tmq", data)


def test_less_than_six_bytes_are_no_tmq_header() -> None:
    for length in range(6):
        assert detect("tmq", b"TMQ\x01\x01\x00"[:length]) is None


@given(
    kind=st.sampled_from(["flint", "tmq"]),
    start=st.sampled_from([b"", b"\xf5FM", b"\xf5FM\x01", b"TMQ", b"TMQ\x01"]),
    data=st.binary(max_size=40),
)
@settings(max_examples=500, deadline=None)
def test_random_bytes_have_a_header_or_none_or_a_bad_one(
    kind: str, start: bytes, data: bytes
) -> None:
    try:
        found = detect(kind, start + data)
    except BadHeader:
        return
    assert found is None or (start + data).endswith(found.body)

"""Arrow columns as a record batch: whole columns are copied into place, no row is looked at.

The other direction is `flintmq.arrow`; what that gives is taken here. Columns that may be there:

    value         binary or string, none of them null
    key           binary or string; string makes a text key
    headers       map<string, binary or string>, or list<struct<name, value>>; a value that is null
                  is an empty one
    priority      any integer, 0 to 7; null is 0
    expires_at    timestamp; null is never
    ttl           the same as a duration from the append on; one of the two
    deliver_at    timestamp; null is at once
    delay         the same as a duration from the append on; one of the two
    content_type  string, as it is or as a dictionary; null or empty is none
    key_hash      uint32, as `key_hashes` gives it, for who has it already

Needs pyarrow, which is imported when first used.
"""

from __future__ import annotations

from struct import unpack_from
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest
from .arrow_checksums import checksums, pyarrow_modules
from .compression import compress_payload
from .format import (
    ABSENT,
    BYTES,
    COMPRESSIONS,
    CONTENT_TYPES,
    DELIVER_AT,
    EXPIRY,
    HEADER_KINDS,
    HEADERS,
    KEY_HASH,
    KEY_KINDS,
    KEYS,
    PRIORITY,
    PRODUCER,
    RELATIVE,
    TYPES_VARY,
    U32,
    U32_PAIR,
    pad,
)
from .record_batch import RecordBatch

if TYPE_CHECKING:
    import pyarrow

PRIORITY_MAX = 7
_SPREAD = 0x9E3779B97F4A7C15

Part = bytes | memoryview


def from_arrow(
    rows: pyarrow.RecordBatch,
    *,
    compression: str = "none",
    producer: str | None = None,
    base_sequence: int = 0,
) -> RecordBatch:
    """The rows as a record batch that no broker has stamped yet. Raises InvalidRequest."""
    count = rows.num_rows
    if not count:
        raise InvalidRequest("a record batch needs at least one row")
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    control: list[Part] = []
    payload: list[Part] = []
    columns = _control(found, control) | _payload(found, payload)
    if producer is not None:
        name = producer.encode()
        control.append(pad(U32.pack(len(name)) + name))
        columns |= PRODUCER
    control_length = sum(map(len, control))
    if compression == "none":
        body = b"".join((*control, *payload))
        raw_length = payload_length = len(body) - control_length
    else:
        raw = b"".join(payload)
        stored = compress_payload(compression, raw)
        raw_length, payload_length = len(raw), len(stored)
        body = b"".join((*control, stored, bytes(-payload_length & 7)))
    return RecordBatch(
        columns=columns,
        row_count=count,
        body=body,
        control_length=control_length,
        payload_length=payload_length,
        raw_length=raw_length,
        compression=COMPRESSIONS[compression],
        base_sequence=base_sequence,
    )


def key_hashes(keys: pyarrow.Array) -> pyarrow.Array:
    """`key_hash` of every key, as uint32; 0 where there is none."""
    pa, compute = pyarrow_modules()
    if keys.null_count == len(keys):
        return _zeros(len(keys), pa.uint32())
    offsets, data = _spans(keys)
    starts = pa.Array.from_buffers(pa.int32(), len(keys) + 1, [None, pa.py_buffer(offsets)])
    crcs = checksums(starts, data).cast(pa.uint64())
    whole = compute.multiply(crcs, pa.scalar(_SPREAD, pa.uint64()))  # modulo 2**64
    hashes = compute.shift_right(whole, pa.scalar(32, pa.uint64())).cast(pa.uint32())
    hashes = compute.max_element_wise(hashes, pa.scalar(1, pa.uint32()))
    if keys.null_count:
        hashes = compute.if_else(keys.is_valid(), hashes, pa.scalar(0, pa.uint32()))
    return hashes


# --- the sections


def _control(found: dict[str, Any], parts: list[Part]) -> int:
    pa, compute = pyarrow_modules()
    columns = 0
    priority = found.get("priority")
    if priority is not None and priority.null_count < len(priority):
        lowest, highest = compute.min_max(priority).as_py().values()
        if lowest < 0 or highest > PRIORITY_MAX:
            wrong = lowest if lowest < 0 else highest
            raise InvalidRequest(f"priority is 0 to {PRIORITY_MAX}, not {wrong}")
        if highest:
            _add_fixed(parts, compute.fill_null(priority, 0).cast(pa.uint8()))
            columns |= PRIORITY
    for name, other, bit in (("expires_at", "ttl", EXPIRY), ("deliver_at", "delay", DELIVER_AT)):
        times, durations = found.get(name), found.get(other)
        if times is not None and durations is not None:
            raise InvalidRequest(f"{name} and {other} say the same; give one of them")
        if times is not None and times.null_count < len(times):
            _add_fixed(parts, _milliseconds(times))
            columns |= bit
        if durations is not None and durations.null_count < len(durations):
            _add_fixed(parts, _below_zero(durations, other))
            columns |= bit | RELATIVE
    keys = found.get("key")
    if keys is not None and keys.null_count < len(keys):
        hashes = found.get("key_hash")
        _add_fixed(parts, key_hashes(keys) if hashes is None else hashes)
        columns |= KEY_HASH
    return columns


def _payload(found: dict[str, Any], parts: list[Part]) -> int:
    pa, compute = pyarrow_modules()
    columns = 0
    values = found["value"]
    if values.null_count:
        row = compute.index(values.is_null(), True).as_py()
        raise InvalidRequest(
            f"the value of row {row} is null; a message has a value, if an empty one"
        )
    _add_binary(parts, values)
    keys = found.get("key")
    if keys is not None and keys.null_count < len(keys):
        columns |= KEYS
        _add_binary(parts, keys)
        is_text = pa.types.is_string(keys.type)
        if not is_text or keys.null_count:
            columns |= KEY_KINDS
            kind = pa.scalar(2 if is_text else BYTES, pa.uint8())
            absent = pa.scalar(ABSENT, pa.uint8())
            _add_fixed(parts, compute.if_else(keys.is_valid(), kind, absent))
    headers = found.get("headers")
    if headers is not None and headers.null_count < len(headers):
        columns |= _add_headers(parts, headers)
    types = found.get("content_type")
    if types is not None and types.null_count < len(types):
        columns |= _add_content_types(parts, types)
    return columns


def _add_headers(parts: list[Part], headers: Any) -> int:
    pa, compute = pyarrow_modules()
    if pa.types.is_map(headers.type):
        pair = pa.struct([("name", headers.type.key_type), ("value", headers.type.item_type)])
        headers = headers.cast(pa.list_(pair))
    entries = headers.flatten()  # of the rows that have some, and of nothing else
    if not len(entries):
        return 0
    names, values = entries.flatten()
    if entries.null_count or names.null_count:
        raise InvalidRequest("a header without a name")
    lengths = compute.fill_null(compute.list_value_length(headers), 0)
    ends = compute.cumulative_sum(lengths).cast(pa.int32())
    _add_fixed(parts, pa.concat_arrays([_zeros(1, pa.int32()), ends]))
    _add_binary(parts, names)
    _add_binary(parts, values)
    if pa.types.is_string(values.type):
        return HEADERS
    parts.append(pad(bytes([BYTES]) * len(values)))
    return HEADERS | HEADER_KINDS


def _add_content_types(parts: list[Part], types: Any) -> int:
    pa, compute = pyarrow_modules()
    if pa.types.is_dictionary(types.type):
        types = types.cast(types.type.value_type)
    types = compute.if_else(compute.equal(types, ""), pa.scalar(None, types.type), types)
    encoded = types.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if not names:
        return 0
    vary = len(names) > 1 or encoded.null_count > 0
    if vary:
        names = ["", *names]
    parts.append(U32_PAIR.pack(len(names), 0))
    _add_binary(parts, pa.array(names, pa.string()))
    if not vary:
        return CONTENT_TYPES
    entries = compute.fill_null(compute.add(encoded.indices, 1), 0)
    _add_fixed(parts, entries.cast(pa.int32()))
    return CONTENT_TYPES | TYPES_VARY


# --- arrays as bytes


def _milliseconds(times: Any) -> Any:
    pa, compute = pyarrow_modules()
    whole = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    # 0 means that there is none; a time of long ago is still one.
    return compute.fill_null(compute.max_element_wise(whole, 1, skip_nulls=False), 0)


def _below_zero(durations: Any, name: str) -> Any:
    """Durations as they are in a batch: negative, 0 for none."""
    pa, compute = pyarrow_modules()
    whole = durations.cast(pa.duration("ms"), safe=False).cast(pa.int64())
    shortest = compute.min(whole).as_py()
    if shortest < 0:
        raise InvalidRequest(f"{name} is not negative; {shortest / 1000:g} s is")
    if name == "ttl":
        whole = compute.max_element_wise(whole, 1, skip_nulls=False)  # 0 would be for ever
    return compute.fill_null(compute.negate(whole), 0)


def _zeros(count: int, kind: Any) -> Any:
    pa, _ = pyarrow_modules()
    data = pa.py_buffer(bytes(count * kind.bit_width // 8))
    return pa.Array.from_buffers(kind, count, [None, data])


def _add_fixed(parts: list[Part], items: Any) -> None:
    width = items.type.bit_width // 8
    data = memoryview(items.buffers()[1])
    data = data[items.offset * width : (items.offset + len(items)) * width]
    parts.append(data)
    parts.append(bytes(-len(data) & 7))


def _add_binary(parts: list[Part], items: Any) -> None:
    offsets, data = _spans(items)
    parts += (offsets, bytes(-len(offsets) & 7), data, bytes(-len(data) & 7))


def _spans(items: Any) -> tuple[Part, Part]:
    """The offsets of byte strings, beginning with 0, and what they point into."""
    pa, compute = pyarrow_modules()
    if items.null_count:
        items = compute.fill_null(items, "" if pa.types.is_string(items.type) else b"")
    _, spans, data = items.buffers()
    count = len(items)
    offsets = memoryview(spans)[4 * items.offset : 4 * (items.offset + count + 1)]
    first, last = unpack_from("<i", offsets, 0)[0], unpack_from("<i", offsets, 4 * count)[0]
    if first:
        moved = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(offsets)])
        rebased = compute.subtract(moved, pa.scalar(first, pa.int32()))
        offsets = memoryview(rebased.buffers()[1])[: 4 * (count + 1)]
    return offsets, memoryview(data)[first:last] if data is not None else b""

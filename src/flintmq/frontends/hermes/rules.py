"""What HermesMQ says where a client says nothing, and how much it may ask for. Pure."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

from ...batch import BatchBuilder, RecordBatch
from ...errors import FlintError, NotLeader
from ...model import PRIORITY_MAX, RATE_MAX, SECONDS_MAX, Receipt
from ...serde.content_type import parse_content_type
from . import codec as hermes

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
POLL_DEFAULT, POLL_MAX = 16, 1024
PREFETCH_MAX = 1024
VISIBILITY_SECONDS = 30.0
VISIBILITY_SECONDS_MAX = 10 * 365 * 86_400.0
"""They have no limit; a clock of ours does."""
WAIT_SECONDS_MAX = 300.0
RETENTION_COUNT = 1_000_000
PRODUCER_CHARS_MAX = 256
REFRESHES = 2
"""How often the lease of a pushed message is renewed before it is pushed again."""

AUTO = "auto"
"""The only ack_mode that is not manual."""

TOPIC_OPTIONS: dict[str, Any] = {"retention_count": RETENTION_COUNT, "max_deliveries": None}
"""Of topics that are made for them. They know no dead letters: a message comes until it is acked;
`flintmq topic edit NAME --max-deliveries 5` has it otherwise."""

_TYPES = {1: "text/plain", 2: "application/json", 3: "application/msgpack"}
_NUMBERS = {name: number for number, name in _TYPES.items()}

EMPTY = hermes.polled([])


def poll_count(wanted: int) -> int:
    return min(wanted or POLL_DEFAULT, POLL_MAX)


def prefetch(wanted: int) -> int:
    return min(max(wanted, 1), PREFETCH_MAX)


def visibility(milliseconds: int) -> float:
    return min(milliseconds / 1000 or VISIBILITY_SECONDS, VISIBILITY_SECONDS_MAX)


def wait_seconds(milliseconds: int) -> float:
    return min(milliseconds / 1000, WAIT_SECONDS_MAX)


def rate_options(rate_per_sec: float, burst: int) -> dict[str, Any]:
    """As topic options. The rate is kept in thousandths, and what is less is none."""
    if math.isnan(rate_per_sec) or rate_per_sec < 0.0005:
        return {"rate_limit": None, "rate_burst": None}
    rate = RATE_MAX if math.isinf(rate_per_sec) else math.floor(rate_per_sec * 1000 + 0.5) / 1000
    return {"rate_limit": min(rate, RATE_MAX), "rate_burst": max(burst, 1)}


def retention_options(max_messages: int, max_age_ms: int) -> dict[str, Any]:
    """As topic options: nothing said is a million messages, an age alone has no count."""
    if not max_messages and not max_age_ms:
        max_messages = RETENTION_COUNT
    return {
        "retention_count": min(max_messages, 2**63 - 1) or None,
        "retention_age": min(max_age_ms / 1000, SECONDS_MAX) or None,
    }


def is_plain(request: hermes.Produce) -> bool:
    """Whether there is nothing but the payload."""
    return not (request.priority or request.producer_id or request.content_type in _TYPES)


def rows_of(request: hermes.Produce) -> BatchBuilder | RecordBatch:
    rows = BatchBuilder()
    rows.append_row(
        request.payload,
        priority=min(request.priority, PRIORITY_MAX),
        content_type=_TYPES.get(request.content_type),
    )
    if request.producer_id:
        return rows.seal(producer=producer_name(request.producer_id), base_sequence=request.seq)
    return rows


def producer_name(producer_id: str) -> str:
    """Ids are kept for as long as their sequences are known: long ones by a digest."""
    if len(producer_id) <= PRODUCER_CHARS_MAX:
        return producer_id
    return f"sha256:{hashlib.sha256(producer_id.encode()).hexdigest()}"


def content_number(content_type: str | None) -> int:
    """What they call a content type; a plain one only, as they would not know what to undo."""
    if not content_type:
        return 0
    return _NUMBERS.get(content_type) or _NUMBERS.get(_media_type(content_type), 0)


def _media_type(content_type: str) -> str:
    said = parse_content_type(content_type)
    is_plain = said.encoding == "none" and said.header == "none"
    return said.media_type if is_plain and not (said.pre_hooks or said.post_hooks) else ""


def produced(receipt: Receipt) -> bytes:
    if receipt.offset is None:
        return hermes.error("internal", "the topic is full and drops new messages (overflow)")
    return hermes.produced(receipt.offset)


def too_large(length: int) -> bytes:
    return hermes.error(
        "payload_too_large", f"payload is {length} bytes; max is {PAYLOAD_BYTES_MAX}"
    )


def bad_request(why: str) -> bytes:
    return hermes.error("bad_request", why)


def not_leader(leader_addr: str) -> bytes:
    return hermes.error(
        "not_leader", "not the leader; retry against leader_addr", leader_addr=leader_addr
    )


def failed(error: BaseException, leader_addr: str = "") -> bytes:
    """The frame that tells of an error. Their protocol has one code for all of ours."""
    if isinstance(error, NotLeader):
        return not_leader(leader_addr)
    if isinstance(error, FlintError):
        return hermes.error("internal", str(error))
    return hermes.error("internal", "internal error of the broker; see its log")


def rate_limited(seconds: float) -> bytes:
    return hermes.error(
        "rate_limited", "rate limit exceeded", retry_after_ms=max(1, math.ceil(seconds * 1000))
    )

"""Who comes from BlipMQ or HermesMQ finds every key of theirs, and only settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

from flintmq.config.docs import PAGE
from flintmq.config.table import BY_NAME
from flintmq.model import OPTION_NAMES

MAPPING = (Path(__file__).parents[2] / PAGE).read_text().partition("## Coming from")[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in MAPPING.splitlines()
    if line.startswith(("| `", "| TTL"))
]

BLIPMQ = """
bind_addr port metrics_addr metrics_port wal_path fsync_policy max_retries retry_backoff_ms
allowed_api_keys enable_tokio_console tls_cert_path tls_key_path
server.bind_addr server.max_connections server.max_message_size_bytes server.auth_enabled
server.api_key auth.api_keys queues.topic_capacity queues.max_queue_depth
queues.subscriber_capacity queues.overflow_policy wal.directory wal.wal_dir wal.enabled
wal.segment_size_bytes wal.segment_size_mb wal.max_segments wal.flush_interval_ms
wal.fsync_interval_ms metrics.bind_addr metrics.enabled delivery.max_batch delivery.max_batch_bytes
delivery.flush_interval_ms delivery.fanout_shards delivery.default_ttl_ms logging.level
logging.format logging.file performance.enable_timer_wheel timer_wheel_resolution_ms
performance.enable_memory_pools warm_up_pools allocator performance.enable_batch_processing
performance.batch_config.* performance.batch_config.channel_capacity performance.cpu_affinity.*
performance.network_optimizations.tcp_nodelay ...send_buffer_size recv_buffer_size tcp_send_buffer
tcp_recv_buffer ...reuse_addr reuse_port ...keepalive_timeout_secs
"""
HERMESMQ = """
--data-dir --client-addr --metrics-addr --metrics-enabled --node-id --peer-addr RUST_LOG
"""
OTHER_WORDS = {
    "capacity", "linger", "poll", "read_batch", "nack(delay=)", "message.process(backoff=)",
    'storage = "memory"', 'fsync = "interval:<ms>"', "--config", "FLINTMQ_CONFIG",
}  # fmt: skip
"""Arguments and values that are no settings."""


def test_every_key_of_theirs_has_a_row() -> None:
    mapped = {word for row in ROWS for word in re.findall("`([^`]+)`", row[0])}

    assert set(BLIPMQ.split()) | set(HERMESMQ.split()) <= mapped


def test_what_takes_their_place_exists() -> None:
    named = {word for row in ROWS for word in re.findall("`([^`]+)`", row[1])}

    assert named <= set(BY_NAME) | set(OPTION_NAMES) | OTHER_WORDS
    assert {"listen", "max_queue_bytes", "ttl"} <= named


def test_what_has_no_counterpart_is_explained() -> None:
    for row in ROWS:
        if row[1].startswith("none"):
            assert len(row[2]) > 10 or row[2] in ("always on",), row

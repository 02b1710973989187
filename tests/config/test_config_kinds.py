"""How each kind of value is read from text and from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.config.kinds import (
    Boolean,
    Bytes,
    Choice,
    Count,
    FilePath,
    HostPort,
    Kind,
    LogLevels,
    Rate,
    Seconds,
    TopicDefaults,
    UnfitValue,
)
from flintmq.config.table import Config

PORT = HostPort(7600)
TAKEN: list[tuple[Kind, Any, Any]] = [
    (PORT, "0.0.0.0:1", ("0.0.0.0", 1)),
    (PORT, ":0", ("127.0.0.1", 0)),
    (PORT, "host", ("host", 7600)),
    (PORT, "host:65535", ("host", 65_535)),
    (PORT, "[::1]:9", ("::1", 9)),
    (PORT, "[::1]", ("::1", 7600)),
    (PORT, "::", ("::", 7600)),
    (PORT, " host:1 ", ("host", 1)),
    (HostPort(1, can_be_off=True), "OFF", None),
    (HostPort(1, can_be_off=True), "", None),
    (Bytes(), "64MiB", 64 * 2**20),
    (Bytes(), "1.5 KiB", 1536),
    (Bytes(), "2GB", 2 * 10**9),
    (Bytes(), "12", 12),
    (Bytes(), 12, 12),
    (Seconds(), "1500ms", 1.5),
    (Seconds(), "2h", 7200.0),
    (Seconds(), 3, 3.0),
    (Count(), "9007199254740993", 2**53 + 1),
    (Rate(), "0.5", 0.5),
    (Boolean(), "Yes", True),
    (Boolean(), "0", False),
    (Choice(("a", "off")), "A", "a"),
    (Choice(("a", "off")), False, "off"),
    (FilePath(), "a b", Path("a b")),
    (FilePath(), "off", Path("off")),
    (FilePath(can_be_off=True), "off", None),
    (LogLevels(), {"a": {"b": "info"}, "c.d": "error"}, {"a.b": "info", "c.d": "error"}),
    (LogLevels(), "", {}),
    (TopicDefaults(), {"retention_age": "7d"}, {"retention_age": 604_800.0}),
    (TopicDefaults(), {"retention_bytes": "none"}, {"retention_bytes": None}),
    (TopicDefaults(), {"pre_hooks": ["a", "b"]}, {"pre_hooks": ("a", "b")}),
    (TopicDefaults(), "pre_hooks=a+b", {"pre_hooks": ("a", "b")}),
    (TopicDefaults(), "format=raw, schema=b:3", {"format": "raw", "schema": "b:3"}),
    (TopicDefaults(), {"keep_until_settled": True}, {"keep_until_settled": True}),
]  # fmt: skip
REFUSED: list[tuple[Kind, Any]] = [
    (PORT, "host:"), (PORT, "host:65536"), (PORT, "host:x"), (PORT, "a:b:c"), (PORT, "a b:1"),
    (PORT, "http://host:1"), (PORT, "[::1"), (PORT, ""), (PORT, None), (PORT, "host:٣"),
    (Bytes(), "64 mib"), (Bytes(), "0.5"), (Bytes(), "1,000"), (Bytes(), 1.0), (Bytes(), "1s"),
    (Seconds(), "5 minutes"), (Seconds(), "1e3"), (Seconds(), True), (Seconds(), "inf"),
    (Count(), "1.5"), (Count(), "0x10"), (Boolean(), "maybe"), (Boolean(), 1),
    (Choice(("a", "b")), "c"), (Choice(("a", "b")), 1),
    (FilePath(), ""), (FilePath(), "a\0b"), (FilePath(), 3),
    (LogLevels(), {"a": "loud"}), (LogLevels(), "a"), (LogLevels(), ["a"]),
    (TopicDefaults(), {"partitions": 3}), (TopicDefaults(), {"ttl": 0}),
    (TopicDefaults(), {"retention_count": "many"}), (TopicDefaults(), {"format": "object"}),
    (TopicDefaults(), {"overflow": "explode"}), (TopicDefaults(), {"nonsense": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "value"), TAKEN)
def test_what_is_taken(kind: Kind, given: Any, value: Any) -> None:
    found = kind.from_value(given)

    assert (found, type(found)) == (value, type(value))
    if isinstance(given, str):
        assert kind.from_text(given) == value


@pytest.mark.parametrize(("kind", "given"), REFUSED)
def test_what_is_refused(kind: Kind, given: Any) -> None:
    with pytest.raises(UnfitValue):
        kind.from_value(given)
    if isinstance(given, str):
        with pytest.raises(UnfitValue):
            kind.from_text(given)


def test_a_configuration_can_be_described_to_programs() -> None:
    config = Config(data_dir=Path("/x"), max_away=3, sources={"max_away": "x.toml:1"})

    described = config.described()
    assert described["max_away"] == {"value": 3, "source": "x.toml:1", "reload": True}
    assert described["listen"] == {"value": "127.0.0.1:7600", "source": "default", "reload": False}
    assert described["http"]["value"] == "off"

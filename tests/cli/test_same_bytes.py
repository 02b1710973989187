"""What `pub` publishes, `sub` prints: through the commands themselves, for any bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flintmq

from .conftest import Shell

through_commands = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Every command opens the broker anew, which takes its time."""

_numbers = count()


def told(shell: Shell, *arguments: str, stdin: bytes = b"") -> bytes:
    code, out, err = shell(*arguments, stdin=stdin)
    assert code == 0, err
    return out


def envelopes(lines: bytes) -> list[dict[str, Any]]:
    """Without what only the broker says."""
    found = [json.loads(line) for line in lines.splitlines()]
    for one in found:
        for name in ("topic", "timestamp"):
            del one[name]
    return found


@pytest.mark.slow
@through_commands
@given(data=st.binary(max_size=300), compression=st.sampled_from([[], ["--compression", "gzip"]]))
def test_any_file_comes_out_byte_for_byte(
    shell: Shell, tmp_path: Path, data: bytes, compression: list[str]
) -> None:
    topic = f"t{next(_numbers)}"
    (tmp_path / "any").write_bytes(data)
    told(shell, "pub", topic, "--file", str(tmp_path / "any"), *compression)
    assert told(shell, "sub", topic, "--raw") == data
    assert told(shell, "sub", topic) == data + b"\n"
    assert told(shell, "sub", topic, "-f", "%v|") == data + b"|"


@pytest.mark.slow
@through_commands
@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=30))
def test_any_lines_come_out_as_they_were(shell: Shell, lines: list[bytes]) -> None:
    topic = f"t{next(_numbers)}"
    data = b"".join(line + b"\n" for line in lines)
    shell("topic", "add", topic)
    told(shell, "pub", topic, "--lines", stdin=data)
    assert told(shell, "sub", topic) == data


_keys = st.none() | st.text(max_size=9) | st.binary(max_size=9)
_headers = st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3)


@pytest.mark.slow
@through_commands
@given(
    rows=st.lists(st.tuples(st.binary(max_size=60), _keys, _headers), min_size=1, max_size=10),
    options=st.sampled_from([[], ["--compression", "gzip"], ["--format", "msgpack"]]),
)
def test_any_messages_go_through_envelopes_from_topic_to_topic(
    shell: Shell, rows: list[tuple[bytes, Any, dict[str, str]]], options: list[str]
) -> None:
    first, second = f"t{next(_numbers)}", f"t{next(_numbers)}"
    shell("topic", "add", second, *options)
    lines = b""
    for value, key, headers in rows:
        said: dict[str, Any] = {"value_base64": b64encode(value).decode(), "headers": headers}
        if isinstance(key, bytes):
            said["key_base64"] = b64encode(key).decode()
        elif key is not None:
            said["key"] = key
        lines += json.dumps(said).encode() + b"\n"
    told(shell, "topic", "add", first, *options)
    told(shell, "pub", first, "-J", stdin=lines)
    there = told(shell, "sub", first, "-J")
    told(shell, "pub", second, "-J", stdin=there)
    assert envelopes(told(shell, "sub", second, "-J")) == envelopes(there)
    if "--format" not in options:
        assert told(shell, "sub", second, "--raw") == b"".join(value for value, _, _ in rows)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_records = st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1), "name": st.text()})
SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}


@pytest.mark.slow
@through_commands
@given(
    st.one_of(
        st.tuples(st.just("json"), _json),
        st.tuples(st.just("msgpack"), _json),
        st.tuples(st.just("avro"), _records),
        st.tuples(st.just("text"), st.text(max_size=40)),
    )
)
def test_any_value_of_a_format_goes_through_that_format(
    shell: Shell, tmp_path: Path, said: tuple[str, Any]
) -> None:
    format, value = said
    first, second = f"t{next(_numbers)}", f"t{next(_numbers)}"
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    schema = ["--schema", str(tmp_path / "order.avsc")] if format == "avro" else []
    for topic in (first, second):
        told(shell, "topic", "add", topic, "--format", format, *schema)
    text = value if format == "text" else json.dumps(value)
    told(shell, "pub", first, "--format", format, stdin=text.encode())
    decoded = told(shell, "sub", first, "-J", "--decode")
    assert json.loads(decoded)["value"] == value
    told(shell, "pub", second, "-J", stdin=decoded)
    assert envelopes(told(shell, "sub", second, "-J")) == envelopes(told(shell, "sub", first, "-J"))


@pytest.mark.parametrize("value", [{"raw": b"\xff"}, {1: "one"}, [b"x"], b"\xc1", float("inf")])
def test_what_json_has_no_word_for_comes_back_as_the_bytes_it_is(
    shell: Shell, server: str, value: Any
) -> None:
    with flintmq.connect_sync(server) as mq:
        mq.publish("first", value, format="msgpack")
    for decode in ([], ["--decode"]):
        told(shell, "pub", "second", "-J", stdin=told(shell, "sub", "first", "-J", *decode))
    with flintmq.connect_sync(server) as mq, mq.reader("second") as reader:
        assert reader.read_batch(2, timeout=0).decode() == [value, value]


def test_a_compressed_topic_gives_back_what_was_published(
    shell: Shell, terminal: Callable[..., bytes]
) -> None:
    shell("topic", "add", "small", "--compression", "gzip", "--magic-header", "flint")
    shell("pub", "small", "hello")
    shell("pub", "packed", '{"id": 42}', "--format", "msgpack")
    assert told(shell, "sub", "small") == b"hello\n"
    assert told(shell, "sub", "packed", "--decode") == b'{"id":42}\n'
    assert b'{"id":42}' in terminal("sub", "packed"), "people are shown what it stands for"

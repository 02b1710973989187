"""`pub` and `sub`: what goes in comes out, for any bytes; and what is said wrongly is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flintmq
from flintmq.cli import envelope
from flintmq.cli.formatting import formatter
from flintmq.rows import Message

from .conftest import Shell


def test_a_value_is_published_and_printed(shell: Shell) -> None:
    assert shell("pub", "orders", "hello")[0] == 0
    assert shell("sub", "orders") == (0, b"hello\n", "")


def test_each_line_is_a_message_and_comes_out_as_a_line(shell: Shell) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(2500))
    shell("pub", "orders", "--lines", stdin=lines)
    assert shell("sub", "orders")[1] == lines


def test_a_file_comes_out_byte_for_byte(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(bytes(range(256)) * 50)
    shell("pub", "images", "--file", str(tmp_path / "photo"))
    assert shell("sub", "images", "--raw")[1] == bytes(range(256)) * 50


def test_envelopes_are_copied_from_topic_to_topic(shell: Shell) -> None:
    shell("pub", "orders", "a", "--key", "k", "-H", "region:eu", "--priority", "3")
    code, lines, _ = shell("sub", "orders", "-J")
    assert code == 0
    assert shell("pub", "copy", "-J", stdin=lines)[0] == 0
    told = json.loads(shell("sub", "copy", "-J")[1])
    assert told | {"timestamp": 0} == {
        "topic": "copy",
        "partition": "0",
        "offset": "0",
        "timestamp": 0,
        "key": "k",
        "headers": {"region": "eu"},
        "priority": 3,
        "value": "a",
    }


def test_a_message_that_is_passed_on_ends_when_it_would_have_ended(shell: Shell) -> None:
    shell("pub", "orders", "a", "--ttl", "1h")
    lines = shell("sub", "orders", "-J")[1]
    shell("pub", "copy", "-J", stdin=lines)

    copied = json.loads(shell("sub", "copy", "-J")[1])
    assert copied["expires_at"] == json.loads(lines)["expires_at"]


def test_the_number_of_a_message_is_put_in(shell: Shell) -> None:
    shell("pub", "orders", "--count", "3", "order {{n}}")
    assert shell("sub", "orders")[1] == b"order 1\norder 2\norder 3\n"


def test_a_group_is_worked_off_and_a_named_reader_moves(shell: Shell) -> None:
    shell("pub", "orders", "--count", "4", "{{n}}")
    assert shell("sub", "orders", "--group", "g", "--count", "2")[1] == b"1\n2\n"
    assert shell("sub", "orders", "--group", "g", "--timeout", "0")[1] == b"3\n4\n"
    assert shell("sub", "orders", "--reader", "r", "--count", "3")[1] == b"1\n2\n3\n"
    assert shell("sub", "orders", "--reader", "r")[1] == b"4\n"


def test_what_was_published_is_told_as_json(shell: Shell) -> None:
    out = json.loads(shell("pub", "orders", "--count", "5", "x", "--output", "json")[1])
    assert (out["count"], out["last_offset"], out["ended"]) == (5, "4", "done")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "text"),
    [
        (["sub", "nothing"], b"", 1, "topic 'nothing' does not exist"),
        (["pub", "orders", "x", "-H", "nocolon"], b"", 2, "a header must be NAME:VALUE"),
        (
            ["pub", "orders", "-J"],
            b'{"valeu": 1}\n',
            1,
            "line 1: unknown field 'valeu' in the envelope",
        ),
        (["pub", "orders", "-J"], b"\n{\n", 1, "line 2: an envelope must be a JSON object"),
        (["pub", "orders", "x", "--delay", "soon"], b"", 2, "'soon' is not a duration"),
        (["pub", "orders", "x", "--format", "json"], b"", 1, "the value must be JSON"),
        (["sub", "orders", "-f", "%q"], b"", 2, "no %q"),
        (["sub", "orders", "--group", "g", "--live"], b"", 2, "choose one of"),
        (["sub", "orders", "--from", "then"], b"", 2, "'then' is not a position"),
        (["sub", "orders", "--server", "http://x"], b"", 1, "unknown broker URL"),
        (
            ["sub", "orders", "--context", "x", "--server", "memory://"],
            b"",
            1,
            "unknown context 'x'",
        ),
    ],
)
def test_what_is_said_wrongly_is_told_in_one_line(
    shell: Shell, arguments: list[str], stdin: bytes, code: int, text: str
) -> None:
    ended, out, err = shell(*arguments, stdin=stdin)
    assert (ended, out) == (code, b"")
    assert text in err
    assert "Traceback" not in err


def test_a_format_string_names_every_fact(shell: Shell) -> None:
    shell("pub", "orders", "v", "--key", "k", "-H", "a:b", "--priority", "2")
    printed = shell("sub", "orders", "-f", r"%t|%p|%o|%k|%v|%h|%s|%P|%c|%%\n")[1]
    assert printed == b"orders|0|0|k|v|a=b|1|2||%\n"


def _published(value: bytes, keywords: Mapping[str, Any]) -> Message:
    async def story() -> Message:
        async with flintmq.connect("memory://") as mq:
            await mq.publish("t", value, **keywords)
            async with mq.reader("t") as reader:
                found = await reader.read()
                assert found is not None
                return found

    return asyncio.run(story())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    value=st.binary(max_size=60),
    key=st.none() | st.binary(max_size=9) | st.text(max_size=9),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.binary(max_size=5)),
    priority=st.integers(0, 7),
    content_type=st.none() | st.sampled_from(["text/plain", "application/x-own"]),
)
def test_any_message_comes_back_through_its_envelope(
    value: bytes,
    key: str | bytes | None,
    headers: dict[str, str | bytes],
    priority: int,
    content_type: str | None,
) -> None:
    first = _published(
        value,
        {"key": key, "headers": headers, "priority": priority, "content_type": content_type},
    )
    again = envelope.outgoing(envelope.line(first))
    second = _published(again.value, again.keywords)
    assert (second.value, second.key, second.headers, second.priority, second.content_type) == (
        first.value,
        first.key,
        first.headers,
        first.priority,
        first.content_type,
    )


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(value=_json, format=st.sampled_from(["json", "msgpack"]))
def test_any_value_of_a_format_comes_back_through_it(value: Any, format: str) -> None:
    said = json.dumps({"value": value, "format": format}).encode()
    sent = envelope.outgoing(said)
    message = _published(sent.value, sent.keywords)
    assert json.loads(envelope.line(message, decode=True))["value"] == value


@given(st.binary(max_size=50))
@settings(max_examples=30, deadline=None)
def test_a_value_is_printed_as_it_is_by_a_format_string(value: bytes) -> None:
    assert formatter("%v")(_published(value, {})) == value

"""topic, group, dlq, context, check: what operators type, and what they see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import flintmq
from flintmq.cli.root import root

from .conftest import Shell


def told(shell: Shell, *arguments: str) -> Any:
    code, out, err = shell(*arguments, "--output", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def dead(server: str, shell: Shell) -> None:
    """Three messages, of which a group has given up on two."""
    with flintmq.connect_sync(server) as mq:
        mq.create_topic("orders", max_deliveries=1)
        mq.publish_batch("orders", [b"a", b"b", b"c"])
        for message in mq.poll("orders", "billing", max=2):
            message.reject("no such customer")


def test_topics_are_made_listed_changed_emptied_and_deleted(shell: Shell) -> None:
    shell("topic", "add", "orders", "--retention-age", "7d", "--max-deliveries", "3")
    shell("pub", "orders", "--count", "5", "x")
    assert [(t["name"], t["message_count"]) for t in told(shell, "topic", "ls")] == [("orders", 5)]
    info = told(shell, "topic", "info", "orders")
    assert (info["options"]["retention_age"], info["options"]["max_deliveries"]) == (604800.0, 3)
    changed = told(shell, "topic", "edit", "orders", "--retention-age", "none", "--ttl", "90s")
    assert (changed["options"]["retention_age"], changed["options"]["ttl"]) == (None, 90.0)
    assert told(shell, "topic", "purge", "orders", "--before", "2", "--yes")["purged"] == 2
    assert [m["offset"] for m in told(shell, "topic", "peek", "orders")] == ["2", "3", "4"]
    assert told(shell, "topic", "rm", "orders", "--yes") == {"deleted": ["orders"], "messages": 3}
    assert told(shell, "topic", "ls") == []


def test_an_edit_says_what_was_and_what_is(shell: Shell) -> None:
    shell("topic", "add", "orders", "--retention-age", "7d")
    out = shell("topic", "edit", "orders", "--retention-age", "none", "--ttl", "90s")[1].decode()
    assert out.splitlines() == ["retention_age  7d -> none", "ttl            none -> 90s"]


@pytest.mark.slow
def test_the_newest_and_what_a_group_gets_next_can_be_looked_at(shell: Shell) -> None:
    shell("pub", "orders", "--count", "5", "{{n}}")
    shell("sub", "orders", "--group", "g", "--count", "2")

    def values(*arguments: str) -> list[str]:
        return [message["value"] for message in told(shell, "topic", "peek", "orders", *arguments)]

    assert values("--last", "--count", "2") == ["4", "5"]
    assert values("--group", "g", "--count", "2") == ["3", "4"]
    assert values("--filter", "offset >= 3") == ["4", "5"]
    assert shell("topic", "peek", "orders", "--last", "--group", "g")[0] == 2
    assert told(shell, "group", "info", "orders", "g")["lag"] == 3
    shell("topic", "add", "row", "--partitions", "3")
    for value in "abcdef":
        shell("pub", "row", value, "--key", value)
    newest = told(shell, "topic", "peek", "row", "--last", "--count", "2")
    assert [message["value"] for message in newest] == ["e", "f"]


def test_lists_for_people_fit_and_name_what_there_is(shell: Shell, dead: None) -> None:
    for arguments, words in (
        (("topic", "ls"), ["orders", "MESSAGES"]),
        (("topic", "info", "orders"), ["max_deliveries", "billing"]),
        (("group", "ls"), ["billing", "queue"]),
        (("group", "info", "orders", "billing"), ["dead_letters", "2"]),
        (("dlq", "show", "orders", "billing"), ["no such customer", "DELIVERIES"]),
    ):
        code, out, _ = shell(*arguments)
        assert code == 0
        text = out.decode()
        assert all(word in text for word in words), text
        assert max(map(len, text.splitlines())) <= 100, text


def test_dead_letters_are_shown_put_back_and_let_go(shell: Shell, dead: None) -> None:
    assert told(shell, "dlq", "ls") == [{"topic": "orders", "group": "billing", "dead_letters": 2}]
    first, second = told(shell, "dlq", "show", "orders", "billing")
    assert (first["reason"], first["message"]["value"]) == ("no such customer", "a")
    back = told(shell, "dlq", "redrive", "orders", "billing", "--id", first["id"], "--yes")
    assert back["count"] == 1
    gone = told(shell, "dlq", "discard", "orders", "billing", "--id", second["id"], "--yes")
    assert gone["count"] == 1
    assert told(shell, "dlq", "ls") == []
    assert shell("sub", "orders", "--group", "billing", "--timeout", "0")[1] == b"c\na\n"


def test_groups_are_paused_reset_and_forgotten(shell: Shell) -> None:
    shell("pub", "orders", "--count", "3", "{{n}}")
    shell("sub", "orders", "--group", "g", "--count", "3")
    assert told(shell, "group", "info", "orders", "g")["lag"] == 0
    shell("group", "pause", "orders", "g")
    assert told(shell, "group", "ls", "orders")[0]["paused"] is True
    shell("group", "resume", "orders", "g")
    shell("group", "reset", "orders", "g", "--to", "1", "--yes")
    assert shell("sub", "orders", "--group", "g", "--timeout", "0")[1] == b"2\n3\n"
    assert told(shell, "group", "in-flight", "orders", "g") == []
    shell("group", "rm", "orders", "g", "--yes")
    assert told(shell, "group", "ls", "orders") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "rm", "orders"],
        ["key", "rm", "somebody", "--data-dir", "."],
        ["topic", "purge", "orders"],
        ["group", "reset", "orders", "billing", "--to", "earliest"],
        ["group", "rm", "orders", "billing"],
        ["dlq", "redrive", "orders", "billing"],
        ["dlq", "discard", "orders", "billing"],
    ],
)
def test_what_cannot_be_undone_asks_and_a_script_has_to_say_yes(
    shell: Shell, dead: None, arguments: list[str]
) -> None:
    code, _, err = shell(*arguments)
    assert (code, "pass --yes" in err) == (2, True)
    stats = told(shell, "group", "info", "orders", "billing")
    assert (stats["dead_letters"], stats["position"]) == (2, "2")


def test_check_tells_by_its_exit_code(shell: Shell, dead: None) -> None:
    assert shell("check", "orders", "billing")[0] == 0
    assert shell("check", "orders", "billing", "--dead-warn", "1")[0] == 1
    assert shell("check", "orders", "billing", "--dead-critical", "1")[0] == 2
    code, out, _ = shell("check", "nothing", "--output", "json")
    assert (code, json.loads(out)["verdict"]) == (2, "critical")


def test_a_context_stands_for_a_broker(
    shell: Shell, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINTMQ_CONTEXTS", str(tmp_path / "contexts.json"))
    monkeypatch.delenv("FLINTMQ_SERVER")
    assert shell("context", "add", "here", "--server", server)[0] == 0
    shell("context", "add", "there", "--server", "flint://127.0.0.1:1")
    shell("pub", "orders", "through a context")
    assert shell("sub", "orders")[1] == b"through a context\n"
    assert told(shell, "context", "ls")["current"] == "here"
    shell("context", "use", "there")
    assert "127.0.0.1:1" in shell("sub", "orders")[2]
    assert shell("sub", "orders", "--context", "here")[0] == 0
    shell("context", "rm", "there")
    assert "unknown context 'there'" in shell("context", "use", "there")[2]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: Shell, shell_name: str) -> None:
    assert b"_FLINTMQ_COMPLETE" in shell("completion", shell_name)[1]


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name)


ALL = list(commands(root, ()))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself_with_an_example_of_its_own(
    shell: Shell, path: tuple[str, ...]
) -> None:
    code, out, _ = shell(*path, "--help")
    text = out.decode()
    assert code == 0
    assert "Examples:" in text
    assert re.search(rf"flintmq {' '.join(path)}\b", text.partition("Examples:")[2]), text

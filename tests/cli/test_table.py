"""`flintmq table`: print, set, delete and watch the last values of a topic."""

from __future__ import annotations

import json

from .conftest import Shell


def test_keys_are_set_printed_and_deleted(shell: Shell) -> None:
    assert shell("table", "prices", "--set", "EURUSD=1.07", "--set", "GBPUSD=1.27")[0] == 0
    assert shell("table", "prices", "--set", "EURUSD=1.08")[0] == 0
    code, out, _ = shell("table", "prices")
    assert code == 0
    assert out.split() == [b"key", b"value", b"GBPUSD", b"1.27", b"EURUSD", b"1.08"]
    assert shell("table", "prices", "EURUSD")[1].split()[2:] == [b"EURUSD", b"1.08"]
    assert shell("table", "prices", "--delete", "EURUSD")[0] == 0
    code, _, err = shell("table", "prices", "EURUSD")
    assert code == 1
    assert "no value for key 'EURUSD'" in err


def test_json_is_a_line_for_each_key_and_change(shell: Shell) -> None:
    shell("table", "prices", "--set", 'EURUSD={"bid": 1}')
    code, out, _ = shell(
        "table", "prices", "--delete", "none", "--output", "json", "--watch", "--timeout", "0"
    )
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0] == {"key": "none", "deleted": True, "offset": "1"}
    assert (lines[1]["key"], lines[1]["value"]) == ("EURUSD", '{"bid": 1}')


def test_a_plain_topic_and_wrong_usage_say_what_to_do(shell: Shell) -> None:
    shell("pub", "orders", "x")
    code, _, err = shell("table", "orders", "--set", "k=v")
    assert code == 1
    assert "`flintmq topic edit orders --compact key`" in err
    for looking in (("table", "orders"), ("sub", "orders", "--last-per-key")):
        assert "`flintmq topic edit orders --compact key`" in shell(*looking)[2]
    assert shell("topic", "edit", "orders", "--compact", "key")[0] == 0
    assert "`flintmq table none --set KEY=VALUE` creates it" in shell("table", "none")[2]
    assert shell("table", "prices", "--set", "k")[0] == 2
    assert shell("table", "prices", "k", "--set", "k=v")[0] == 2

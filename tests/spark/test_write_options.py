"""What a writing user can say, and that the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flintmq
from flintmq.spark.write_columns import COLUMNS
from flintmq.spark.write_options import WRITE_OPTIONS, write_options

DOCS = (Path(__file__).parents[2] / "docs" / "spark-writing.md").read_text()


def test_the_page_has_the_table_of_options() -> None:
    for name, meaning in WRITE_OPTIONS.items():
        assert f"| `{name}` | {meaning} |" in DOCS


def test_the_page_has_every_column() -> None:
    table = DOCS.partition("## Columns")[2].partition("## Options")[0]

    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.M)))) == set(
        COLUMNS
    )


def test_what_is_not_said_is_exactly_once_and_may_create() -> None:
    options = write_options({"servers": "host:1", "topic": "orders"}, streams=True)

    assert (options.delivery, options.auto_create, options.compression) == (
        "exactly_once",
        True,
        "none",
    )


def test_names_do_not_mind_their_case() -> None:
    options = write_options(
        {"SERVERS": "host:1", "Topic": "orders", "autocreate": "FALSE"}, streams=False
    )

    assert (options.topic, options.auto_create) == ("orders", False)


@pytest.mark.parametrize(
    ("said", "streams", "why"),
    [
        ({}, False, "set the address of the broker"),
        (
            {"servers": "h:1", "delivry": "x"},
            False,
            "unknown option 'delivry'; did you mean delivery",
        ),
        ({"servers": "h:1", "delivery": "twice"}, False, "delivery must be one of"),
        ({"servers": "h:1", "compression": "rar"}, False, "rar"),
        ({"servers": "h:1", "autoCreate": "perhaps"}, False, "autoCreate must be true or false"),
        ({"servers": "h:1", "topic": "a.>"}, False, "a.>"),
        ({"servers": "h:1", "path": "x"}, False, "a topic has no path"),
        ({"servers": "h:1", "transaction": "x"}, False, "transactionVersion together"),
        ({"servers": "h:1", "transactionVersion": "1"}, False, "transactionVersion together"),
        (
            {"servers": "h:1", "transaction": "x", "transactionVersion": "-1"},
            False,
            "a whole number",
        ),
        (
            {
                "servers": "h:1",
                "transaction": "x",
                "transactionVersion": "1",
                "delivery": "idempotent",
            },
            False,
            "with delivery=exactly_once",
        ),
        (
            {"servers": "h:1", "transaction": "x", "transactionVersion": "1"},
            True,
            "transaction is for batch writes",
        ),
    ],
)
def test_what_makes_no_sense_is_said(said: dict[str, str], streams: bool, why: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match=why):
        write_options(said, streams=streams)

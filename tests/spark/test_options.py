"""What users say, and what they are told when it makes no sense. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flintmq.errors import InvalidRequest
from flintmq.spark.connecting import BrokerSettings
from flintmq.spark.options import OPTIONS, ReadOptions, read_options

DOCS = Path(__file__).parents[2] / "docs" / "spark.md"


def options(*, streams: bool = False, **said: Any) -> ReadOptions:
    return read_options({"servers": "h:1", "subscribe": "orders", **said}, streams=streams)


def test_names_are_known_in_whatever_case_spark_hands_them_over() -> None:
    assert options(minpartitions="4", MAXRECORDSPERPARTITION="9").min_tasks == 4


def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="'startingoffset'; did you mean startingOffsets"):
        options(startingOffset="earliest")
    with pytest.raises(InvalidRequest, match=r"unknown option 'zzz'\. Known options: apiKey"):
        options(zzz="1")


def test_an_option_of_another_kind_of_read_says_what_it_is_for() -> None:
    with pytest.raises(InvalidRequest, match="maxOffsetsPerTrigger is for streams, not for batch"):
        options(maxOffsetsPerTrigger="5")
    with pytest.raises(InvalidRequest, match="endingOffsets is for batch reads"):
        options(streams=True, startingOffsets="earliest", endingOffsets="latest")
    with pytest.raises(InvalidRequest, match="filter is for batch reads and streams"):
        read_options({"path": "/d", "subscribe": "t", "filter": "priority > 1"}, streams=False)


def test_exactly_one_of_topics_and_a_pattern_is_said() -> None:
    for said in ({}, {"subscribe": "a", "subscribePattern": "a.*"}):
        with pytest.raises(InvalidRequest, match="one of subscribe"):
            read_options({"servers": "h:1", **said}, streams=False)
    assert read_options({"servers": "h:1", "subscribe": "b, a,,b"}, streams=False).topics == (
        "b",
        "a",
    )


def test_a_pattern_is_ours_and_a_regular_expression_is_told_so() -> None:
    with pytest.raises(InvalidRequest, match="match whole words"):
        read_options({"servers": "h:1", "subscribePattern": "orders.*x"}, streams=False)


def test_where_a_stream_begins_by_itself_is_where_kafkas_does() -> None:
    assert options().start == "earliest"
    assert options(streams=True, group="g").start == "latest"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"startingOffsets": "latest"},
        {"startingTimestamp": "0"},
        {"startingOffsets": '{"orders": {"0": -1}}'},
    ],
)
def test_a_start_that_moves_needs_a_group_to_be_pinned_under(said: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="needs the option group"):
        options(streams=True, **said)
    assert options(streams=True, group="g", **said).start_moves


def test_a_start_that_stays_needs_none() -> None:
    assert not options(streams=True, startingOffsets="earliest").start_moves
    assert not options(streams=True, startingOffsets='{"orders": {"0": 5}}').start_moves


def test_a_time_goes_before_offsets_and_has_a_zone() -> None:
    said = options(startingTimestamp="1700000000000", startingOffsets="earliest")
    assert said.start == datetime.fromtimestamp(1_700_000_000, UTC)
    assert options(endingTimestamp="2026-01-31T12:00:00+00:00").end == datetime(
        2026, 1, 31, 12, tzinfo=UTC
    )
    with pytest.raises(InvalidRequest, match="no time zone"):
        options(startingTimestamp="2026-01-31T12:00:00")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("minPartitions", "0", "at least 1"),
        ("includeHeaders", "yes", "true or false"),
        ("brokerTimeout", "soon", "250ms, 30s or 15m"),
        ("startingOffsets", "latest", "for streams"),
        ("view", "newest", "all or latest"),
        ("endingOffsets", "earliest", "not earliest"),
        ("filter", "import os", "option filter"),
    ],
)
def test_a_value_that_makes_no_sense_is_said(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        read_options({"servers": "h:1", "subscribe": "orders", name: text}, streams=False)


def test_sizes_and_times_have_units() -> None:
    said = options(
        streams=True, group="g", maxBytesPerTrigger="64m", maxTriggerDelay="90s",
        brokerTimeout="250ms",
    )  # fmt: skip
    assert said.trigger_bytes_max == 64 * 1024 * 1024
    assert said.trigger_delay == 90.0
    assert said.settings.patience == 0.25


def test_a_batch_that_could_never_be_made_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no batch could ever start"):
        options(streams=True, group="g", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="5")


def test_an_end_before_the_start_is_a_slip_that_is_said() -> None:
    with pytest.raises(InvalidRequest, match=r"partition 1 of .* at 20 .* after its end 10"):
        options(
            startingOffsets='{"orders": {"0": 5, "1": 20}}',
            endingOffsets='{"orders": {"0": -1, "1": 10}}',
        )
    with pytest.raises(InvalidRequest, match="is after endingTimestamp"):
        options(startingTimestamp="2000", endingTimestamp="1000")
    options(startingOffsets='{"orders": {"0": 5}}', endingOffsets='{"orders": {"0": 5}}')


def test_servers_are_a_url_or_hosts() -> None:
    assert BrokerSettings("a:1, b:2").url == "flint://a:1,b:2"
    assert BrokerSettings("flints://a:1").url == "flints://a:1"
    with pytest.raises(InvalidRequest, match="not http://"):
        _ = BrokerSettings("http://a:1").url
    with pytest.raises(InvalidRequest, match="set the address of the broker"):
        read_options({"subscribe": "orders"}, streams=False)


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    said = options(apiKey="very-secret")
    assert said.settings.credential() == "very-secret"
    assert "very-secret" not in repr(said)

    file = tmp_path / "key"
    file.write_text("from-a-file\n")
    assert options(apiKeyFile=str(file)).settings.credential() == "from-a-file"
    with pytest.raises(InvalidRequest, match="not both"):
        options(apiKey="a", apiKeyFile="b")


def test_the_page_has_every_option_as_the_code_has_it() -> None:
    text = DOCS.read_text()
    found = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))

    for option in OPTIONS:
        ways = ", ".join(way for way in ("batch", "stream", "direct") if way in option.ways)
        assert found.get(option.name, "").strip() == ways, option.name
    reading = text[text.index("## Reading") : text.index("## Columns")]
    named = set(re.findall(r"^\| `(\w+)` \|", reading, re.MULTILINE))
    assert named == {option.name for option in OPTIONS}


def test_a_view_of_now_has_no_start_and_no_end() -> None:
    assert options(view="latest").view == "latest"
    with pytest.raises(InvalidRequest, match="cannot be combined with startingOffsets"):
        options(view="latest", startingOffsets="earliest")
    with pytest.raises(InvalidRequest, match="is for batch reads"):
        options(streams=True, view="latest")

"""Content types: what they say, and that any text is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.serde.content_type import ContentType, format_content_type, parse_content_type

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,9}", fullmatch=True)


def test_a_content_type_says_everything_in_order() -> None:
    whole = ContentType(
        "avro/binary", ("sign",), "zstd", ("seal", "wrap"), "flint", "0123456789abcdef", "mine"
    )
    text = (
        "avro/binary; format=mine; schema=0123456789abcdef; pre=sign; encoding=zstd; "
        "post=seal,wrap; header=flint"
    )

    assert format_content_type(whole) == text
    assert parse_content_type(text) == whole


@given(
    st.builds(
        ContentType,
        media_type=st.from_regex(r"[a-z]{1,8}/[a-z.+-]{1,12}", fullmatch=True),
        pre_hooks=st.lists(NAMES, max_size=3).map(tuple),
        encoding=st.sampled_from(["none", "gzip", "zstd", "lz4"]),
        post_hooks=st.lists(NAMES, max_size=3).map(tuple),
        header=st.sampled_from(["none", "flint", "tmq"]),
        schema=st.from_regex(r"([0-9a-f]{16})?", fullmatch=True),
        format=st.one_of(st.just(""), NAMES),
    )
)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read(content_type: ContentType) -> None:
    assert parse_content_type(format_content_type(content_type)) == content_type


@pytest.mark.parametrize(
    "text",
    ["application/json", "APPLICATION/JSON", " application/json ", "application/json;",
     "application/json; charset=utf-8", 'application/json; charset="utf-8"; q=1',
     "application/json;;; ;", "application/json; =x; y; z="],
)  # fmt: skip
def test_parameters_of_others_are_left_alone(text: str) -> None:
    assert parse_content_type(text) == ContentType("application/json")


def test_names_and_values_may_be_written_as_others_do() -> None:
    text = 'application/json;ENCODING="GZIP" ; Header=Flint;pre= a , b ,'

    assert parse_content_type(text) == ContentType("application/json", ("a", "b"), "gzip", (),
                                                   "flint")  # fmt: skip


def test_what_is_said_first_counts() -> None:
    assert parse_content_type("a/b; encoding=gzip; encoding=zstd").encoding == "gzip"


@pytest.mark.parametrize(
    "text", ["text/plain; format=flowed; delsp=yes", "text/plain; format=Fixed"]
)
def test_the_format_of_mail_is_not_ours(text: str) -> None:
    assert parse_content_type(text) == ContentType("text/plain")


def test_the_header_line_of_csv_is_not_ours() -> None:
    assert parse_content_type("text/csv; header=present; charset=utf-8").header == "none"
    assert parse_content_type("text/csv; header=flint").header == "flint"


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                [
                    "a/b",
                    ";",
                    "=",
                    ",",
                    '"',
                    " ",
                    "pre",
                    "post",
                    "encoding",
                    "header",
                    "schema",
                    "format",
                    "gzip",
                    "flint",
                    "\x00",
                    "\ud800",
                    "é",
                ]
            ),
            max_size=20,
        ).map("".join),
    )
)
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_content_type(text: str) -> None:
    said = parse_content_type(text)

    assert ";" not in said.media_type
    assert all((*said.pre_hooks, *said.post_hooks))

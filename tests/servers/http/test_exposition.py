"""The text Prometheus reads is right in every odd case."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.frontends.http.exposition import LABEL_CHARS_MAX, Family, Page, families, label
from flintmq.observe.metrics import Histogram

from .promtool import read_labels, read_page

SIZE = Family("flintmq_a_size_bytes", "gauge", "How large.", ("topic",))
SEEN = Family("flintmq_a_seen_total", "counter", "How often; \\ and all.", ("topic",))
TOOK = Family("flintmq_a_took_seconds", "histogram", "How long.", ("topic",))


def page_text(page: Page, *, is_open: bool = False) -> str:
    return b"".join(page.chunks(is_open=is_open)).decode()


def test_a_page_reads_as_it_was_written() -> None:
    page = Page([SIZE, SEEN, TOOK])
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    for topic in ("one", "two"):
        page.add(SIZE, 42, label("topic", topic))
        page.add(SEEN, 2**60, label("topic", topic))
        page.add(TOOK, histogram, label("topic", topic))

    for is_open in (False, True):
        read = read_page(page_text(page, is_open=is_open), is_open=is_open)
        one = (("topic", "one"),)
        assert read[SIZE.name].samples[SIZE.name, one] == 42
        assert read[SEEN.name].samples[SEEN.name, one] == 2**60
        assert read[TOOK.name].samples[f"{TOOK.name}_bucket", (*one, ("le", "0.1"))] == 2
        assert read[TOOK.name].samples[f"{TOOK.name}_count", one] == 4
        assert read[TOOK.name].samples[f"{TOOK.name}_sum", one] == pytest.approx(7.65)
    assert page.series == 2 * (1 + 1 + 5)


def test_openmetrics_names_counters_without_their_suffix_and_says_units() -> None:
    page = Page([SIZE, SEEN])
    page.add(SIZE, 1, 'topic="a"')
    page.add(SEEN, 1, 'topic="a"')

    text = page_text(page, is_open=True)

    assert "# TYPE flintmq_a_seen counter\nflintmq_a_seen_total{" in text
    assert "# UNIT flintmq_a_size_bytes bytes\n" in text
    assert text.endswith("# EOF\n")


def test_a_family_without_samples_is_left_out() -> None:
    assert page_text(Page([SIZE])) == ""


def test_a_long_page_comes_in_pieces_that_say_each_family_once() -> None:
    page = Page([SIZE])
    for number in range(5000):
        page.add(SIZE, number, f'topic="{number}"')

    chunks = list(page.chunks(is_open=False))

    assert len(chunks) > 10
    assert len(read_page(b"".join(chunks).decode())[SIZE.name].samples) == 5000


@settings(max_examples=100)
@given(st.text('ab"\\n,{}=ü☃', min_size=1, max_size=12))
def test_every_label_reads_as_it_was_written(value: str) -> None:
    assert read_labels(label("topic", value)) == (("topic", value),)


def test_very_long_labels_are_cut_and_still_told_apart() -> None:
    one, other = (label("topic", "x" * 60_000 + end) for end in "ab")

    assert one != other
    assert len(one) < LABEL_CHARS_MAX + 50


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (0.25, "0.25"), (1e-7, "1e-07")],
)
def test_numbers_are_written_the_way_go_reads_them(value: float, text: str) -> None:
    page = Page([SIZE])
    page.add(SIZE, value, 'topic="a"')
    assert page_text(page).endswith(f" {text}\n")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("flintmq_seen", "counter"), ("flintmq_seen_total", "gauge"), ("flintmq-seen", "gauge")],
)
def test_a_family_with_a_bad_name_is_not_made(name: str, kind: str) -> None:
    with pytest.raises(AssertionError):
        Family(name, kind, "Text.")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "page",
    [
        'flintmq_a{topic="a"} 1\n',
        "# HELP flintmq_a A.\n# TYPE flintmq_a gauge\nflintmq_a 1\nflintmq_a 1\n",
        "# HELP flintmq_a A.\n# TYPE flintmq_a counter\nflintmq_a 1\n",
        "# HELP flintmq_a A.\n# TYPE flintmq_a gauge\nflintmq_b 1\n",
        '# HELP flintmq_a A.\n# TYPE flintmq_a gauge\nflintmq_a{b="c"d"} 1\n',
        "# HELP flintmq_a_ms A.\n# TYPE flintmq_a_ms gauge\nflintmq_a_ms 1\n",
        "# HELP flintmq_a A.\n# TYPE flintmq_a histogram\n"
        'flintmq_a_bucket{le="1.0"} 2\nflintmq_a_bucket{le="+Inf"} 1\n'
        "flintmq_a_sum 1\nflintmq_a_count 1\n",
    ],
)
def test_the_reader_of_these_tests_takes_nothing_on_trust(page: str) -> None:
    with pytest.raises(AssertionError):
        read_page(page)


TABLE = families(
    ("topic",),
    ("seen_total", "What was seen.", "count"),
    ("full", "1 where it is full.", lambda facts: facts.is_full),
    ("age_seconds", "How old it is.", "age"),
    ("took_seconds", "How long it took.", "times.took", "histogram"),
) + families(
    ("topic", "reason"),
    ("lost_total", "What was lost.", "lost"),
) + families(
    ("topic", "page", "code"),
    ("asked_total", "What was asked.", "asked"),
)  # fmt: skip


def test_a_table_is_read_by_attributes_or_functions_and_says_its_kinds() -> None:
    took = Histogram((1.0,))
    took.observe(0.5)
    facts = SimpleNamespace(
        count=3,
        is_full=True,
        age=None,
        times=SimpleNamespace(took=took),
        lost={"age": 1, 'odd "one"': 0},
        asked={("health", 200): 2},
    )
    page = Page(TABLE)

    page.add_table(TABLE, facts, label("topic", "t"))

    text = page_text(page)
    assert 'seen_total{topic="t"} 3\n' in text
    assert 'full{topic="t"} 1\n' in text
    assert 'took_seconds_count{topic="t"} 1\n' in text
    assert "age_seconds" not in text
    assert 'lost_total{topic="t",reason="age"} 1\n' in text
    assert 'lost_total{topic="t",reason="odd \\"one\\""} 0\n' in text
    assert 'asked_total{topic="t",page="health",code="200"} 2\n' in text
    kinds = [family.kind for family in TABLE]
    assert kinds == ["counter", "gauge", "gauge", "histogram", "counter", "counter"]

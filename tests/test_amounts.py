"""Sizes, counts and times for people: one way for the whole package."""

from __future__ import annotations

from flintmq.amounts import age, many, precise, rate, short, size


def test_sizes_have_a_unit_and_one_decimal() -> None:
    sizes = (0, 1023, 1024, 46_080, 5 << 20, 3 << 29, 5 << 41)

    assert [size(count) for count in sizes] == [
        "0 B", "1,023 B", "1.0 KiB", "45.0 KiB", "5.0 MiB", "1.5 GiB", "10,240.0 GiB",
    ]  # fmt: skip


def test_counts_name_what_they_count() -> None:
    counts = [many(count, "message") for count in (0, 1, 2000)]

    assert counts == ["0 messages", "1 message", "2,000 messages"]


def test_large_counts_are_cut_to_six_characters() -> None:
    numbers = (0, 999, 9_999, 12_345, 999_990, 4_560_000, 7e9)

    assert [short(n) for n in numbers] == ["0", "999", "9,999", "12.3k", "1000k", "4.56M", "7G"]


def test_a_rate_is_left_out_of_what_took_no_time() -> None:
    assert rate(2000, 0.8) == "in 0.80 s, 2,500/s"
    assert rate(2000, 0.05) == "in 0.05 s"


def test_short_times_have_three_figures_and_a_unit() -> None:
    times = (5e-7, 0.00085, 0.00125, 0.9996, 2.5, 61.24, 999.4, 5000)

    assert [precise(seconds) for seconds in times] == [
        "0.5 us", "850 us", "1.25 ms", "1 s", "2.5 s", "61.2 s", "999 s", "5,000 s",
    ]  # fmt: skip


def test_an_age_is_rounded_to_one_unit() -> None:
    ages = (None, 0.4, 119, 120, 7200, 172_800)

    assert [age(seconds) for seconds in ages] == ["-", "0 s", "119 s", "2 min", "2 h", "2 d"]

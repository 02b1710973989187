"""Drawings of pipelines, in text and in SVG."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from flintmq.pipeline.define.definition import Pipeline
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.draw.picture import picture_of
from flintmq.pipeline.draw.svg import draw_svg
from flintmq.pipeline.draw.text import draw

from ..mistakes import TOML

LARGER = """
name = "larger"
[sources.a]
topic = "a"
schema = "x int"
dead_letters = "a.bad"
[sources.b]
files = "b"
static = true
schema = "x int"
[sources.c]
topics = ["c", "d"]
[steps.one]
sql = "select * from a join b using (x) where '<' != '&'"
[steps.two]
sql = "select * from one join c on one.x = c.offset"
[steps.three]
function = "x.py:three"
inputs = ["two", "a"]
[sinks.raw]
from = "a"
parquet = "raw"
[sinks.out]
from = "three"
topic = "out"
[sinks.see]
from = "two"
console = true
"""


def pipeline(directory: Path, text: str) -> Pipeline:
    path = directory / "x.toml"
    path.write_text(text)
    return read_pipeline(path, {}, {})


def test_a_drawing_of_text(tmp_path: Path) -> None:
    drawn = draw(pipeline(tmp_path, TOML), width=100)

    assert drawn.splitlines() == [
        "┌──────────────────┐     ╭──────────────────╮        ╭────────────────╮     ┏━━━━━━━━━━━━━━━━━━┓",
        "│ orders           │─┬──▶│ sums             │───────▶│ large          │────▶┃ large            ┃",
        "│ topic orders     │ │   │ select region, … │        │ large.py:large │     ┃ topic orders.la… ┃",
        "│ watermark at, 1… │ │   ╰──────────────────╯        ╰────────────────╯     ┃ key region       ┃",
        "└──────────────────┘ │                                                      ┗━━━━━━━━━━━━━━━━━━┛",
        "                     │   ┌┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┐",
        "                     ╰──▶┆ orders.dead-letters ┆",
        "                         ┆ topic orders.bad    ┆",
        "                         ┆ what does not d…    ┆",
        "                         └┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┘",
    ]


def test_terminals_without_such_signs_get_others(tmp_path: Path) -> None:
    drawn = draw(pipeline(tmp_path, TOML), plain=True)

    assert drawn.isascii()
    assert "| orders                   |-+-->| sums" in drawn


def test_every_link_is_in_the_picture_and_runs_to_the_right(tmp_path: Path) -> None:
    picture = picture_of(pipeline(tmp_path, LARGER))

    assert {(one.name, other.name, other.kind) for one, other in picture.links()} == {
        ("a", "a.dead-letters", "dead letters"), ("a", "one", "step"), ("a", "three", "step"),
        ("a", "raw", "sink"), ("b", "one", "step"), ("c", "two", "step"), ("one", "two", "step"),
        ("two", "three", "step"), ("two", "see", "sink"), ("three", "out", "sink"),
    }  # fmt: skip
    for column, boxes in enumerate(picture.columns):
        for box in boxes:
            assert all(after.column == column + 1 for after in box.after), "one column at a time"
    assert {box.column for box in picture.boxes() if box.kind == "sink"} == {4}


def test_a_line_never_runs_through_a_box(tmp_path: Path) -> None:
    drawn = draw(pipeline(tmp_path, LARGER)).splitlines()

    for box in picture_of(pipeline(tmp_path, LARGER)).boxes():
        for line in box.lines:
            assert any(f" {line} " in row for row in drawn), f"{line!r} is whole"
    assert sum(row.count("▶") for row in drawn) == 10, "an end for every link"


def test_svg_is_well_formed_and_says_what_is_in_it(tmp_path: Path) -> None:
    root = ElementTree.fromstring(draw_svg(pipeline(tmp_path, LARGER)))
    name = "{http://www.w3.org/2000/svg}"

    texts = [element.text for element in root.iter(f"{name}text")]
    assert {"larger", "a", "one", "three", "raw", "topic out", "parquet b"} <= set(texts)
    assert "select * from a join b using (x) where '<' …" in texts
    assert len(root.findall(f"{name}g")) == 10
    ends = [path for path in root.iter(f"{name}path") if path.get("marker-end")]
    assert len(ends) == 10
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in root.iter(f"{name}rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width
        assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height


@pytest.mark.parametrize("width", [40, 80, 120])
def test_what_is_said_of_a_box_is_cut_before_lines_are(tmp_path: Path, width: int) -> None:
    wide = max(map(len, draw(pipeline(tmp_path, TOML)).splitlines()))
    narrow = max(map(len, draw(pipeline(tmp_path, TOML), width=width).splitlines()))

    assert narrow < wide
    assert narrow <= max(width, 96), "names are never cut"

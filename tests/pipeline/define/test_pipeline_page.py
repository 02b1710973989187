"""docs/pipelines.md is what the reader knows: tables of keys, files, Python and the drawing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flintmq.pipeline.check.checking import check
from flintmq.pipeline.define.definition import Pipeline
from flintmq.pipeline.define.keys import SECTIONS, FileKey
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.spark.pipeline import running

PAGE = (Path(__file__).parents[3] / "docs/pipelines.md").read_text()


def row(key: FileKey) -> str:
    kind = f"one of {', '.join(f'`{one}`' for one in key.choices)}" if key.choices else key.kind
    needed = " (needed)" if key.is_needed else ""
    return f"| `{key.name}` | {kind}{needed} | {key.meaning} |"


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_has_every_key_and_no_other(section: str) -> None:
    rows = [row(key) for key in SECTIONS[section]]
    table = "\n".join(["| key | | |", "|---|---|---|", *rows])

    assert f"{table}\n\n" in PAGE, f"the table of {section} is:\n{table}"


@pytest.mark.parametrize(
    ("language", "text"), re.findall(r"```(toml|yaml)\n(name.*?)```", PAGE, re.DOTALL)
)
def test_the_files_on_the_page_are_right(tmp_path: Path, language: str, text: str) -> None:
    path = tmp_path / f"x.{language}"
    path.write_text(text)

    assert check(read_pipeline(path, {}, {})) == []


def test_the_python_on_the_page_makes_the_pipeline_of_the_file(tmp_path: Path) -> None:
    [code] = re.findall(r"```py\n(import flintmq.*?)```", PAGE, re.DOTALL)
    [first, *_] = re.findall(r"```toml\n(name.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "x.toml"
    path.write_text(first)
    file = read_pipeline(path, {}, {})
    found: dict[str, object] = {}
    exec(compile(code.partition("totals.run(")[0], "page", "exec"), found)
    made = found["totals"].definition()  # type: ignore[attr-defined]

    assert made.name == file.name
    for section in ("sources", "steps", "sinks"):
        assert list(getattr(made, section)) == list(getattr(file, section))
    assert made.sources["orders"].schema == file.sources["orders"].schema
    assert made.steps["totals"].sql.split() == (file.steps["totals"].sql or "").split()
    assert made.sinks["totals"].key == file.sinks["totals"].key


def test_the_python_on_the_page_that_reads_a_file_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall(r"```py\n(from flintmq.*?)```", PAGE, re.DOTALL)
    [first, *_] = re.findall(r"```toml\n(name.*?)```", PAGE, re.DOTALL)
    (tmp_path / "rollup.toml").write_text(first)
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[Pipeline, bool]] = []
    monkeypatch.setattr(running, "run", lambda made, once: ran.append((made, once)))
    exec(compile(code, "page", "exec"), {})

    [(made, once)] = ran
    assert once
    assert "'5 minutes'" in (made.steps["totals"].sql or "")


def test_the_drawing_on_the_page_is_that_of_the_file(tmp_path: Path) -> None:
    from flintmq.pipeline.draw.text import draw

    [first, *_] = re.findall(r"```toml\n(name.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "x.toml"
    path.write_text(first)

    assert draw(read_pipeline(path, {}, {}), width=120) in PAGE

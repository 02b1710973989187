"""Wrong files: every kind of mistake with the whole of what is said about it, in TOML and in YAML,
by the command itself. No mistake ends in a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flintmq.cli.root import run
from flintmq.errors import MissingExtra
from flintmq.pipeline.check import queries

from ..mistakes import FUNCTIONS, MISTAKES, MISTAKES_THAT_SPARK_FINDS, TOML, YAML, Mistake

LANGUAGES = {"toml": TOML, "yaml": YAML}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the wrong file lies; the environment sets nothing."""
    for name in list(os.environ):
        if name.startswith("FLINTMQ_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large.py").write_text(FUNCTIONS)
    return tmp_path


def answer(mistake: Mistake, language: str) -> tuple[str, str]:
    """The file's name, and all that the command is to say."""
    index = list(LANGUAGES).index(language)
    old, new = mistake.edit[index]
    assert old in LANGUAGES[language], "the mistake is made"
    file = f"totals.{language}"
    Path(file).write_text(LANGUAGES[language].replace(old, new))
    Path("large.py").write_text(mistake.functions)
    at = f":{mistake.at[index]}" if mistake.at[index] else ""
    said = mistake.said if isinstance(mistake.said, str) else mistake.said[index]
    return file, f"flintmq: {file}{at}: {said}\n"


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.kind)
def test_a_mistake_is_told_with_its_place_and_its_remedy(
    mistake: Mistake, language: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file, said = answer(mistake, language)
    code = run(["pipeline", "check", file, "--quick", *mistake.more])

    assert (code, *capfd.readouterr()) == (1, "", said)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mistake", MISTAKES_THAT_SPARK_FINDS, ids=lambda mistake: mistake.kind)
def test_a_mistake_in_a_query_is_told_with_its_place_in_the_file(
    spark: Any, mistake: Mistake, language: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file, said = answer(mistake, language)
    assert run(["pipeline", "check", file, "--quick"]) == 0, "only Spark finds it"
    capfd.readouterr()
    code = run(["pipeline", "check", file])

    assert (code, *capfd.readouterr()) == (1, "", said)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_files_without_the_mistakes_are_right(
    spark: Any, language: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = f"totals.{language}"
    Path(file).write_text(LANGUAGES[language])
    code = run(["pipeline", "check", file])

    assert (code, *capfd.readouterr()) == (0, f"{file}: no errors\n", "")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("none.toml", None, "none.toml: cannot read the file: No such file or directory"),
        (
            "x.json",
            b"{}",
            "x.json: a pipeline file must end in .toml, .yaml, .yml, not '.json'",
        ),
        ("x.toml", b"name = '\xff'", "x.toml:1: is not UTF-8"),
        ("x.yaml", b"- a", "x.yaml:1: not a table of settings; write key: value"),
        ("x.yaml", b"a: [1\nb: 2", "x.yaml:2:2: expected ',' or ']', but got ':', while parsing a "
         "flow sequence that starts on line 1"),
        ("x.toml", b"#" * 1024 * 1025,
         "x.toml: is larger than 1,048,576 bytes: not a pipeline file"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told_in_one_line(
    file: str, content: bytes | None, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path(file).write_bytes(content)
    code = run(["pipeline", "check", file, "--quick"])

    assert (code, *capfd.readouterr()) == (1, "", f"flintmq: {said}\n")


def test_a_query_that_reads_no_source_is_told_as_such(capfd: pytest.CaptureFixture[str]) -> None:
    Path("x.toml").write_text(TOML.replace("from orders group by", "from range(5) group by"))
    code = run(["pipeline", "check", "x.toml", "--quick"])

    assert (code, *capfd.readouterr()) == (
        1,
        "",
        "flintmq: x.toml:7:10: the source orders is not used; add a sink with from = 'orders', "
        "or remove the source\n"
        "flintmq: x.toml:24:8: the sink large takes large, which reads no source; "
        "name a source in its query\n",
    )


def test_everything_that_is_wrong_is_told_at_once_and_programs_can_read_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("x.toml").write_text(TOML.replace("topic", "tpoic"))
    code = run(["pipeline", "check", "x.toml", "--output", "json"])
    out, err = capfd.readouterr()

    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["problems"][1] == {
        "file": "x.toml", "line": 8, "column": 1,
        "text": "a source has no 'tpoic'", "remedy": "did you mean topic?",
    }  # fmt: skip
    assert [(one["line"], one["column"]) for one in told["problems"]] == [(7, 10), (8, 1), (25, 1)]


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ("def large(sums)\n    return sums\n", "large.py:1:16: expected ':'"),
        ("large = 5 +\n", "large.py:1:12: invalid syntax"),
        ("x = '\0'\n", "large.py: "),
    ],
)
def test_a_mistake_in_a_file_of_functions_is_told_with_its_place_there(
    functions: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("x.toml").write_text(TOML)
    Path("large.py").write_text(functions)

    assert run(["pipeline", "check", "x.toml", "--quick"]) == 1
    told = capfd.readouterr().err
    assert told.startswith(f"flintmq: {said}")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "functions",
    [
        "from somewhere import large\n",
        "try:\n    from somewhere import large\nexcept ImportError:\n    large = None\n",
        "if True:\n    def large(sums): ...\n",
        "def make(): ...\nsmall, large = make()\n",
        "from somewhere import *\n",
    ],
)
def test_a_function_may_come_from_elsewhere(
    functions: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("x.toml").write_text(TOML)
    Path("large.py").write_text(functions)

    assert run(["pipeline", "check", "x.toml", "--quick"]) == 0


def test_without_spark_everything_else_is_checked_and_that_is_said(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pipeline: object) -> object:
        raise MissingExtra("Spark", "spark")

    monkeypatch.setattr(queries, "quiet_session", missing)
    Path("x.toml").write_text(TOML)

    assert run(["pipeline", "check", "x.toml"]) == 0
    told = capfd.readouterr().out
    assert "no errors (queries were not analysed:" in told
    assert "[spark]" in told
    assert run(["pipeline", "check", "x.toml", "--output", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["queries_analysed"] is False


def test_what_is_no_parameter_is_misuse(capfd: pytest.CaptureFixture[str]) -> None:
    Path("x.toml").write_text(TOML)

    assert run(["pipeline", "check", "x.toml", "--set", "window", "--quick"]) == 2
    assert "--set takes NAME=VALUE, not 'window'" in capfd.readouterr().err

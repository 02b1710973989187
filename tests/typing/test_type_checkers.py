"""The public API as type checkers see it: mypy reads user_code.py with all the rest, pyright here.

basedpyright is pyright with a Node of its own from PyPI: nothing else is downloaded.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.client.keywords import (
    DEFAULTS,
    BatchKeywords,
    MessageKeywords,
    PublisherKeywords,
    PublishKeywords,
    RowKeywords,
    ValueKeywords,
)
from flintmq.client.values import RowOptions
from flintmq.model import OPTION_NAMES, TopicKeywords
from flintmq.serde.codec import CodecSettings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYRIGHT = Path(sys.executable).with_name("basedpyright")


def pyright(directory: Path, *arguments: str) -> Any:
    """Run as in an activated environment, outside of our tree: as users do."""
    assert PYRIGHT.exists(), "basedpyright is missing, which scripts/setup dev installs"
    found = os.pathsep.join([str(PYRIGHT.parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [str(PYRIGHT), "--outputjson", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PATH": found},
        timeout=100,
    )
    return json.loads(done.stdout)


def errors_of(directory: Path) -> list[tuple[str, str]]:
    """What pyright finds wrong there: file and message."""
    return [
        (Path(one["file"]).name, one["message"].splitlines()[0])
        for one in pyright(directory)["generalDiagnostics"]
        if one["severity"] == "error"
    ]


@pytest.mark.slow
def test_what_users_write_is_understood_by_pyright_and_mistakes_are_found(tmp_path: Path) -> None:
    right = (HERE / "user_code.py").read_text()
    wrong = right.replace('on_full="raise"', 'on_full="rise"').replace(
        "error.capacity", "error.cap"
    )
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(wrong)
    # As pyright itself is set, not by the stricter rules of its fork.
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    errors = errors_of(tmp_path)
    assert [message for name, message in errors if name == "right.py"] == []
    mistakes = [message for name, message in errors if name == "wrong.py"]
    assert any("on_full" in message for message in mistakes)
    assert any('"cap"' in message for message in mistakes)


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SYSTEMS = [
    program
    for readme in sorted((ROOT / "examples").glob("*/README.md"))
    for program in sorted(readme.parent.glob("*.py"))
]
"""Programs of the systems in examples/, which have names of their own."""


@pytest.mark.slow
def test_the_programs_of_documents_and_examples_pass_mypy_strict_and_pyright(
    tmp_path: Path,
) -> None:
    """Whole programs are marked `python`; pieces of one are `py`, and are not looked at here."""
    for document in DOCUMENTS:
        name = re.sub(r"\W", "_", str(document.relative_to(ROOT)))
        programs = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
        for number, program in enumerate(programs):
            (tmp_path / f"{name}_{number}.py").write_text(program)
    for program in SYSTEMS:
        (tmp_path / program.name).write_text(program.read_text())
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "."],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert errors_of(tmp_path) == []


@pytest.mark.slow
def test_no_type_of_a_public_name_is_unknown(tmp_path: Path) -> None:
    report = pyright(tmp_path, "--verifytypes", "flintmq", "--ignoreexternal")["typeCompleteness"]
    assert report["pyTypedPath"].endswith("py.typed")
    homes = [
        f"{thing.__module__}.{thing.__qualname__}"
        for thing in (getattr(flintmq, name) for name in vars(flintmq)["__all__"])
        if hasattr(thing, "__qualname__")
    ]
    public = [
        symbol
        for symbol in report["symbols"]
        if any(symbol["name"] == home or symbol["name"].startswith(f"{home}.") for home in homes)
    ]
    assert len(public) > 400
    unknown = [
        symbol["name"]
        for symbol in public
        # Ambiguous is only what is inferred from what it is first set to, in __init__.
        if not symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]
    ]
    assert unknown == []


def test_the_keywords_of_a_publish_are_what_rows_and_values_are_made_with() -> None:
    assert RowKeywords.__optional_keys__ == set(RowOptions._fields)
    assert ValueKeywords.__optional_keys__ == set(CodecSettings._fields)
    assert BatchKeywords.__optional_keys__ == PublishKeywords.__optional_keys__ | {
        "batch_compression"
    }
    defaults = RowOptions()._asdict()
    assert defaults == {name: DEFAULTS.get(name) for name in defaults}


PUBLISHING = [
    (flintmq.Client.publish, PublishKeywords),
    (flintmq.Client.publish_batch, BatchKeywords),
    (flintmq.Client.publisher, PublisherKeywords),
    (flintmq.Publisher.send, MessageKeywords),
    (flintmq.BlockingClient.publish, PublishKeywords),
    (flintmq.BlockingPublisher.send, MessageKeywords),
]


@pytest.mark.parametrize(("verb", "keywords"), PUBLISHING)
def test_help_shows_each_keyword_of_a_publish_with_its_default(verb: Any, keywords: Any) -> None:
    shown = inspect.signature(verb).parameters
    named = {name: one for name, one in shown.items() if one.kind is one.KEYWORD_ONLY}

    assert set(named) == keywords.__optional_keys__
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    assert {name: one.default for name, one in named.items()} == {
        name: DEFAULTS.get(name) for name in named
    }


async def test_a_keyword_that_is_none_is_refused_as_python_refuses_it() -> None:
    wrong: Any = {"prio": 3, "key": "a"}
    async with flintmq.connect("memory://") as mq:
        with pytest.raises(TypeError, match=r"publish\(\) got an unexpected .* 'prio'"):
            await mq.publish("t", b"x", **wrong)
        with pytest.raises(TypeError, match=r"publish_batch\(\) got an unexpected .* 'prio'"):
            await mq.publish_batch("t", [b"x"], **wrong)
        with pytest.raises(TypeError, match=r"publisher\(\) got an unexpected .* 'prio'"):
            mq.publisher("t", **wrong)
        async with mq.publisher("t") as publisher:
            with pytest.raises(TypeError, match=r"send\(\) got an unexpected .* 'prio'"):
                publisher.send(b"x", **wrong)
        assert await mq.topics() == []


def test_the_keywords_of_a_topic_are_its_options() -> None:
    assert tuple(TopicKeywords.__annotations__) == OPTION_NAMES

"""Functions that a pipeline's file names: found beside it, or told why not."""

from __future__ import annotations

import os.path
from pathlib import Path

import pytest

from flintmq.errors import InvalidRequest
from flintmq.pipeline.define.definition import FilePlace
from flintmq.pipeline.define.loading import load


@pytest.fixture
def place(tmp_path: Path) -> FilePlace:
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    (tmp_path / "raising.py").write_text("import os\n\nraise RuntimeError('no luck')\n")
    return FilePlace(str(tmp_path / "p.toml"), 7, 12)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (
            "no-colon",
            "a function must be 'file.py:name' or 'package.module:name', not 'no-colon'",
        ),
        ("missing.py:f", "the file {beside}/missing.py does not exist"),
        ("broken.py:f", "broken.py:1: invalid syntax"),
        ("raising.py:f", "raising.py:3: RuntimeError: no luck"),
        ("no.such.module:f", "no module 'no'"),
        ("os.path:joim", "os.path has no function 'joim'; did you mean 'join'?"),
        ("os.path:sep", "'sep' in os.path is not a function"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_place(
    named: str, told: str, place: FilePlace
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(named, place)

    beside = str(Path(place.file).parent)
    assert str(refused.value) == f"{place}: {told.format(beside=beside)}"


def test_functions_of_modules_and_functions_themselves_are_taken_as_they_are(
    place: FilePlace,
) -> None:
    assert load("os.path:join", place) is os.path.join
    assert load(len, place) is len

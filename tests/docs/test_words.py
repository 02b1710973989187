"""One class name, one meaning; and the words of ARCHITECTURE are those of the code."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import flintmq

SOURCE = Path(flintmq.__file__).parent
ARCHITECTURE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()

NAMED_BY_OTHERS = {
    "frontends/http/models.py",  # the JSON form of a value has the value's name, in OpenAPI too
    "frontends/hermes/codec.py",  # the words of HermesMQ's own protocol
}
CLASS = re.compile(r"^ *class _*(\w+)[(:]", re.MULTILINE)


@cache
def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        where = str(path.relative_to(SOURCE))
        if where not in NAMED_BY_OTHERS:
            for name in CLASS.findall(path.read_text()):
                found[name].append(where)
    return found


def test_a_class_name_has_one_meaning() -> None:
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}


def test_a_word_of_the_glossary_is_a_class_of_that_name() -> None:
    glossary = ARCHITECTURE.partition("## Words")[2].partition("\n## ")[0]
    words = re.findall(r"^\| ([\w ]+) \| `(\w+)` \|", glossary, re.MULTILINE)
    assert len(words) > 20
    known = {name for names in ([name, f"_{name}"] for name in classes()) for name in names}
    assert [word for word, name in words if name not in known] == []

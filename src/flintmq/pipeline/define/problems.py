"""What is wrong with a pipeline: each fault with its place and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import InvalidRequest
from .definition import FilePlace


@dataclass(frozen=True, slots=True)
class Defect:
    place: FilePlace
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}{'; ' if self.remedy else ''}{self.remedy}"


class PipelineInvalid(InvalidRequest):
    """The pipeline is wrong; `problems` lists every fault. Its text has a line for each."""

    def __init__(self, problems: Sequence[Defect]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)


def in_order(problems: Iterable[Defect]) -> list[Defect]:
    """In the order of the file, each once."""
    return sorted(
        dict.fromkeys(problems), key=lambda one: (one.place.file, one.place.line, one.place.column)
    )


def meant(name: str, known: Iterable[str], what: str = "known are") -> str:
    """The remedy for an unknown name."""
    names = list(known)
    near = get_close_matches(name.lower(), names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"{what} {', '.join(names)}" if names else ""

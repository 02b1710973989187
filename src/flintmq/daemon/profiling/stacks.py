"""Stacks and their weights: the data of a profile. Pure."""

from __future__ import annotations

from collections.abc import Iterator

Stack = tuple[str, ...]
"""From the outermost call to the innermost."""

STACKS_MAX = 20_000
DEPTH_MAX = 100
REST = "(other stacks)"


class Stacks:
    """Weights by stack. Bounded: when there are too many, new stacks are counted as one."""

    def __init__(self, stacks_max: int = STACKS_MAX) -> None:
        self._weights: dict[Stack, int] = {}
        self._stacks_max = stacks_max

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, stack: Stack, weight: int) -> None:
        if weight <= 0 or not stack:
            return
        if len(stack) > DEPTH_MAX:
            stack = (*stack[: DEPTH_MAX - 1], "(deeper)")
        if stack not in self._weights and len(self._weights) >= self._stacks_max:
            stack = (stack[0], REST)
        self._weights[stack] = self._weights.get(stack, 0) + weight

    @property
    def total(self) -> int:
        return sum(self._weights.values())

    def items(self) -> Iterator[tuple[Stack, int]]:
        """In alphabetical order, so that equal frames are neighbours."""
        yield from sorted(self._weights.items())

    def folded(self) -> str:
        """One line per stack, in the format of flame graph tools: `outer;inner weight`."""
        return "".join(
            f"{';'.join(frame.replace(';', ',') for frame in stack)} {weight}\n"
            for stack, weight in self.items()
        )

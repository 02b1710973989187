"""A pipeline drawn as text, for terminals. Pure."""

from __future__ import annotations

from ..define.definition import Pipeline
from .picture import LONG, Box, Picture, picture_of

SHORT = 12
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = {
    UP | DOWN: "│", LEFT | RIGHT: "─", DOWN | RIGHT: "╭", DOWN | LEFT: "╮", UP | RIGHT: "╰",
    UP | LEFT: "╯", UP | DOWN | RIGHT: "├", UP | DOWN | LEFT: "┤", LEFT | RIGHT | DOWN: "┬",
    LEFT | RIGHT | UP: "┴", UP | DOWN | LEFT | RIGHT: "┼",
}  # fmt: skip
FRAMES = {
    "source": "┌─┐│└┘", "static source": "┌┄┐┆└┘", "step": "╭─╮│╰╯", "sink": "┏━┓┃┗┛",
    "dead letters": "┌┄┐┆└┘",
}  # fmt: skip
PLAIN = str.maketrans(
    {
        **dict.fromkeys("│┃┆", "|"),
        **dict.fromkeys("─━┄", "-"),
        **dict.fromkeys("┌┐└┘╭╮╰╯┏┓┗┛├┤┬┴┼", "+"),
        "▶": ">",
        "…": "~",
    }
)
"""For terminals without such characters."""


def draw(pipeline: Pipeline, *, width: int | None = None, plain: bool = False) -> str:
    """The pipeline as lines of text, sources on the left and sinks on the right.

    The text in boxes is cut until the lines fit into `width`, if they can.
    """
    text, long = "", LONG
    while long > SHORT:
        text = _Drawing(picture_of(pipeline, long=long)).text()
        if width is None or max(map(len, text.splitlines()), default=0) <= width:
            break
        long -= 4
    return text.translate(PLAIN) if plain else text


class _Drawing:
    def __init__(self, picture: Picture) -> None:
        self._columns = picture.columns
        self._signs: dict[tuple[int, int], str] = {}
        self._strokes: dict[tuple[int, int], int] = {}
        """The directions of lines at each place, so that lines that meet are joined."""
        self._rows: dict[int, int] = {}
        """The row where lines reach a box, by its id."""

    def text(self) -> str:
        self._set_rows()
        left = 0
        for number, column in enumerate(self._columns):
            width = max(max(map(len, box.lines)) for box in column) + 4
            for box in column:
                self._box(box, left, width)
            left += width
            if number + 1 < len(self._columns):
                left = self._links(column, left)
        for place, ways in self._strokes.items():
            self._signs.setdefault(place, LINES[ways])
        bottom = max((row for row, _ in self._signs), default=-1)
        right = max((at for _, at in self._signs), default=-1)
        return "\n".join(
            "".join(self._signs.get((row, at), " ") for at in range(right + 1)).rstrip()
            for row in range(bottom + 1)
        )

    def _set_rows(self) -> None:
        """Put boxes beside their neighbours, if there is room."""
        left: list[Box] = []
        for column in self._columns:
            free = 0
            for box in column:
                wanted = [self._rows[id(one)] for one in box.before]
                top = max(free, min(wanted) - 1 if wanted else 0)
                if box.kind == "line":
                    while self._is_left_by_another(left, box.before, top + 1):
                        top += 1
                self._rows[id(box)] = top + 1
                free = top + (2 if box.kind == "line" else len(box.lines) + 3)
            left = column

    def _is_left_by_another(self, column: list[Box], mine: list[Box], row: int) -> bool:
        """Whether a line would seem to come from a wrong box."""
        return any(box.after and box not in mine and self._rows[id(box)] == row for box in column)

    def _box(self, box: Box, left: int, width: int) -> None:
        row = self._rows[id(box)]
        if box.kind == "line":
            for at in range(left, left + width):
                self._stroke(row, at, LEFT | RIGHT)
            return
        corner, across, corner_right, side, foot, foot_right = tuple(FRAMES[box.kind])
        own = max(map(len, box.lines)) + 4
        inside = own - 2
        self._write(row - 1, left, corner + across * inside + corner_right)
        for number, line in enumerate(box.lines):
            self._write(row + number, left, f"{side} {line.ljust(inside - 1)}{side}")
        self._write(row + len(box.lines), left, foot + across * inside + foot_right)
        if box.after:
            for at in range(left + own, left + width):
                self._stroke(row, at, LEFT | RIGHT)

    def _links(self, column: list[Box], left: int) -> int:
        """The lines to the next column: each box has its own lane for going up and down."""
        going = [box for box in column if box.after]
        right = left + 2 * len(going) + 3
        for lane, box in enumerate(going):
            row, turn = self._rows[id(box)], left + 1 + 2 * lane
            for target in box.after:
                end = self._rows[id(target)]
                if target.kind != "line":
                    end = next(
                        (
                            row
                            for row in range(end, end + len(target.lines))
                            if (row, right - 1) not in self._signs
                            and not self._is_left_by_another(column, [box], row)
                        ),
                        end,
                    )
                    self._signs[(end, right - 1)] = "▶"
                self._way(row, end, left, turn, right - 1)
        return right

    def _way(self, row: int, target: int, left: int, turn: int, end: int) -> None:
        for at in range(left, turn):
            self._stroke(row, at, LEFT | RIGHT)
        for at in range(turn + 1, end + 1):
            self._stroke(target, at, LEFT | RIGHT)
        if row == target:
            self._stroke(row, turn, LEFT | RIGHT)
            return
        down = target > row
        self._stroke(row, turn, LEFT | (DOWN if down else UP))
        self._stroke(target, turn, RIGHT | (UP if down else DOWN))
        for between in range(min(row, target) + 1, max(row, target)):
            self._stroke(between, turn, UP | DOWN)

    def _stroke(self, row: int, at: int, ways: int) -> None:
        self._strokes[(row, at)] = self._strokes.get((row, at), 0) | ways

    def _write(self, row: int, left: int, text: str) -> None:
        for at, sign in enumerate(text, left):
            self._signs[(row, at)] = sign

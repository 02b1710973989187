"""A pipeline drawn as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..define.definition import Pipeline
from .picture import Box, BoxKind, Picture, picture_of

LETTER = 7.3
"""Approximate width of a letter; boxes have some room to spare."""
LINE, PADDING = 17, 11
BETWEEN_COLUMNS, BETWEEN_ROWS = 72, 22
MARGIN, TITLE = 20, 30
COLOURS: dict[BoxKind, tuple[str, str]] = {
    "source": ("#e7f0fb", "#3b73b9"),
    "static source": ("#f2f4f7", "#7d8a9a"),
    "step": ("#fdf6e3", "#c08a1e"),
    "sink": ("#e8f5ec", "#2f8a55"),
    "dead letters": ("#fbeaea", "#b94a48"),
}
"""Fill and border."""
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def draw_svg(pipeline: Pipeline) -> str:
    """The pipeline as one SVG document."""
    return _Svg(picture_of(pipeline)).text()


class _Svg:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._places: dict[int, tuple[float, float, float, float]] = {}
        """Left, top, width and height of each box, by its id."""
        self._place()

    def text(self) -> str:
        right = max((left + width for left, _, width, _ in self._places.values()), default=0.0)
        bottom = max((top + height for _, top, _, height in self._places.values()), default=0.0)
        width = max(right, MARGIN + LETTER * 1.3 * len(self._picture.title)) + MARGIN
        height = bottom + MARGIN
        title = escape(self._picture.title)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
                f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
                f'aria-label="The pipeline {title}">',
                "<defs>",
                '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto"><path d="M0 0.5 L8 4 L0 7.5 z" fill="#66707c"/>'
                "</marker>",
                "</defs>",
                f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
                f'<text x="{MARGIN}" y="{MARGIN + 8}" font-family="{FONT}" font-size="15" '
                f'font-weight="bold" fill="#22272e">{title}</text>',
                *self._lines(),
                *(self._box(box) for box in self._picture.boxes()),
                "</svg>\n",
            ]
        )

    def _place(self) -> None:
        left = float(MARGIN)
        for column in self._picture.columns:
            width = max(_width(box) for box in column)
            free = float(MARGIN + TITLE)
            for box in column:
                height = 0.0 if box.kind == "line" else LINE * len(box.lines) + 2 * PADDING
                middles = [self._middle(one) for one in box.before]
                wanted = min(middles) - height / 2 if middles else 0.0
                top = max(free, wanted)
                own = width if box.kind == "line" else _width(box)
                self._places[id(box)] = (left, top, own, height)
                free = top + height + BETWEEN_ROWS
            left += width + BETWEEN_COLUMNS

    def _middle(self, box: Box) -> float:
        _, top, _, height = self._places[id(box)]
        return top + height / 2

    def _lines(self) -> Iterator[str]:
        for column in self._picture.columns:
            for box in column:
                left, _, width, _ = self._places[id(box)]
                x, y = left + width, self._middle(box)
                if box.kind == "line":
                    yield _path(f"M{left:.1f} {y:.1f} L{x:.1f} {y:.1f}", is_end=False)
                edge = max(sum(self._places[id(one)][::2]) for one in column)
                for target in box.after:
                    to_x, to_y = self._places[id(target)][0], self._middle(target)
                    bend = (to_x - edge) / 2
                    # Straight to the edge of the column: other boxes in it may be wider.
                    yield _path(
                        f"M{x:.1f} {y:.1f} L{edge:.1f} {y:.1f} "
                        f"C{edge + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} "
                        f"{to_x:.1f} {to_y:.1f}",
                        is_end=target.kind != "line",
                    )

    def _box(self, box: Box) -> str:
        left, top, width, height = self._places[id(box)]
        inside, border = COLOURS[box.kind]
        dashes = ' stroke-dasharray="4 3"' if box.kind in ("static source", "dead letters") else ""
        lines = [
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" '
            f'fill="{inside}" stroke="{border}" stroke-width="1.5"{dashes}/>'
        ]
        for number, line in enumerate(box.lines):
            weight, colour = ("bold", "#22272e") if not number else ("normal", "#4a535e")
            lines.append(
                f'<text x="{left + PADDING:.1f}" y="{top + PADDING + LINE * number + 12:.1f}" '
                f'font-family="{FONT}" font-size="12" font-weight="{weight}" fill="{colour}">'
                f"{escape(line)}</text>"
            )
        return f"<g><title>{box.kind} {escape(box.name)}</title>{''.join(lines)}</g>"


def _width(box: Box) -> float:
    return 0.0 if box.kind == "line" else LETTER * max(map(len, box.lines)) + 2 * PADDING


def _path(way: str, *, is_end: bool) -> str:
    end = ' marker-end="url(#end)"' if is_end else ""
    return f'<path d="{way}" fill="none" stroke="#66707c" stroke-width="1.5"{end}/>'

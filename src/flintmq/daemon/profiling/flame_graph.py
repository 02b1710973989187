"""A flame graph as a self-contained SVG: no script, no fonts, no network. Pure.

+--------------------------------+
| all                            |   a frame is as wide as its part of the time; what it called
+------------------+-------------+   is below it. Pointing at one shows its name, its time and
| a                | b           |   its part; beside each other they are in the order of the
+------+-----------+-------------+   alphabet, not of time
| c    | d         |
+------+-----------+
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from xml.sax.saxutils import escape

from ...amounts import precise
from .stacks import Stacks

WIDTH = 1200
ROW = 18
MARGIN = 10
CHARACTER = 6.6
"""Approximate width of a label character."""
NARROWEST = 0.4
"""Narrower frames are left out; their time still counts for their parents."""


@dataclass(slots=True)
class _StackFrame:
    name: str
    weight: int = 0
    inner: dict[str, _StackFrame] = field(default_factory=dict)


def flame_graph(stacks: Stacks, title: str, notes: Sequence[str] = (), unit: str = "µs") -> str:
    """The picture; weights are in `unit`."""
    root = _StackFrame("all")
    for stack, weight in stacks.items():
        root.weight += weight
        frame = root
        for name in stack:
            frame = frame.inner.setdefault(name, _StackFrame(name))
            frame.weight += weight
    top = MARGIN + 22 + 16 * len(notes) + 8
    drawn: list[str] = []
    deepest = _draw(root, root.weight, MARGIN, WIDTH - 2 * MARGIN, 0, top, unit, drawn)
    height = top + (deepest + 1) * ROW + MARGIN
    texts = [
        f'<text x="{MARGIN}" y="{MARGIN + 14}" class="title">{_shown(title)}</text>',
        *(
            f'<text x="{MARGIN}" y="{MARGIN + 32 + 16 * number}" class="note">{_shown(note)}</text>'
            for number, note in enumerate(notes)
        ),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">\n<style>{_STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fffdf8"/>\n'
        + "\n".join([*texts, *drawn])
        + "\n</svg>\n"
    )


_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#222;pointer-events:none}"
    ".title{font-size:15px;font-weight:bold}.note{fill:#666}"
    ".f:hover rect{stroke:#000;stroke-width:1.2;filter:brightness(1.12)}"
)


def _draw(
    frame: _StackFrame,
    total: int,
    x: float,
    width: float,
    depth: int,
    top: int,
    unit: str,
    drawn: list[str],
) -> int:
    """Draw a frame and its children; returns the depth."""
    y = top + depth * ROW
    part = frame.weight / total if total else 0.0
    name = _shown(frame.name)
    label = ""
    room = int((width - 6) / CHARACTER)
    if room >= 3:
        short = _shown(shortened(frame.name, room))
        label = f'<text x="{x + 3:.1f}" y="{y + 12.5:.1f}">{short}</text>'
    drawn.append(
        f'<g class="f"><title>{name}\n{_amount(frame.weight, unit)}, {part:.2%}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 1}" rx="1.5" '
        f'fill="{_colour(frame.name)}"/>{label}</g>'
    )
    deepest = depth
    at = x
    for inner in frame.inner.values():
        inner_width = width * inner.weight / frame.weight
        if inner_width >= NARROWEST:
            deepest = max(
                deepest,
                _draw(inner, total, at, inner_width, depth + 1, top, unit, drawn),
            )
        at += inner_width
    return deepest


def shortened(name: str, room: int) -> str:
    """As much of a dotted name as fits: its end says more than its beginning."""
    while len(name) > room and "." in name.strip("."):
        name = name.lstrip(".").partition(".")[2]
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _amount(weight: int, unit: str) -> str:
    return precise(weight / 1e6) if unit == "µs" else f"{weight:,} {unit}"


def _colour(name: str) -> str:
    """Our functions are warm colours, others cool; a name has the same colour in every picture."""
    number = blake2b(name.encode(errors="replace"), digest_size=2).digest()
    if name.startswith("flintmq"):
        return f"hsl({18 + number[0] % 30},{78 + number[1] % 15}%,{62 + number[1] % 14}%)"
    if name.startswith(("thread ", "all", "(")):
        return "hsl(40,10%,82%)"
    return f"hsl({195 + number[0] % 30},{32 + number[1] % 15}%,{72 + number[1] % 10}%)"


def _shown(text: str) -> str:
    return escape("".join(one if one.isprintable() else "?" for one in text))

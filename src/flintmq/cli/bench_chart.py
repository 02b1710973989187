"""What `flintmq bench` measured, for the eye: bars in a terminal, or a picture."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from xml.sax.saxutils import escape

from ..errors import InvalidRequest
from .latencies import Latencies, shown

BAR = 40


def bars(times: Latencies) -> list[str]:
    """A histogram as lines of text."""
    rows = times.histogram()
    most = max((count for _, count in rows), default=1)
    width = max((len(shown(bound)) for bound, _ in rows), default=0)
    return [
        f"  to {shown(bound).rjust(width)}  {'#' * max(round(count / most * BAR), count > 0):{BAR}}"
        f"  {count:,}"
        for bound, count in rows
    ]


def svg(title: str, lines: list[str], times: dict[str, Latencies]) -> str:
    """A histogram for each kind of latency, with its percentiles, below what was measured."""
    parts: list[str] = []
    y = 28

    def text(
        x: int, content: str, *, size: int = 13, end: bool = False, bold: bool = False
    ) -> None:
        more = (' text-anchor="end"' if end else "") + (' font-weight="bold"' if bold else "")
        place = f'x="{x}" y="{y}" font-size="{size}"'
        parts.append(f"<text {place}{more}>{escape(content)}</text>")

    text(20, title, size=16, bold=True)
    for line in lines:
        y += 20
        text(20, line)
    for name, found in times.items():
        rows = found.histogram()
        if not rows:
            continue
        y += 34
        figures = ", ".join(f"{at} {shown(value)}" for at, value in found.figures().items())
        text(20, f"{name}: {figures}", bold=True)
        y += 8
        most = max(count for _, count in rows)
        for bound, count in rows:
            y += 18
            text(110, f"to {shown(bound)}", size=12, end=True)
            width = round(count / most * 420, 1)
            parts.append(f'<rect x="120" y="{y - 11}" width="{width}" height="13" fill="#c2410c"/>')
            text(round(126 + width), f"{count:,}", size=12)
    height = y + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{height}" '
        f'viewBox="0 0 680 {height}" font-family="sans-serif" fill="#1f2937">\n'
        f'<rect width="680" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def check_chart(path: Path) -> None:
    """Said before anything is measured: which picture cannot be made here."""
    if path.suffix == ".png":
        try:
            import_module("cairosvg")
        except (ImportError, OSError):
            raise InvalidRequest(
                "a PNG needs the package cairosvg: pip install cairosvg; a .svg needs nothing"
            ) from None


def write_chart(path: Path, picture: str) -> None:
    if path.suffix == ".png":
        import_module("cairosvg").svg2png(bytestring=picture.encode(), write_to=str(path))
    else:
        path.write_text(picture)

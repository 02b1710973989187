"""The run as a picture: for each scenario, a bar for each line, as long as its figure."""

from __future__ import annotations

from flintmq.cli.bench_chart import Sheet

from .modes import BARE, IN_WORDS, US
from .results import Line, Results
from .scenarios import Scenario

WIDTH = 820
LEFT = 330
BAR = 380
OURS, THEIRS = "#c2410c", "#64748b"


def picture(results: Results) -> str:
    sheet = Sheet(WIDTH)
    sheet.line(28)
    sheet.text(20, "FlintMQ beside its peers, from Python", size=16, bold=True)
    sheet.line(20)
    cores = results.facts["cores"]
    sheet.text(20, f"messages a second; {cores} cores, client and server share them; 100 bytes")
    for scenario in results.scenarios():
        lines = [line for line in results.lines(scenario) if line.spread is not None]
        if lines and not scenario.is_latency:
            _panel(sheet, scenario, lines)
    return sheet.render()


def _panel(sheet: Sheet, scenario: Scenario, lines: list[Line]) -> None:
    sheet.line(34)
    sheet.text(20, scenario.title, bold=True)
    sheet.line(4)
    # The bare loop is not to scale: it would leave no room for the others.
    brokers = [line for line in lines if line.mode.peer != BARE and line.spread is not None]
    most = max((line.spread.median for line in brokers if line.spread), default=1.0)
    for line in brokers:
        assert line.spread is not None
        sheet.line(17)
        sheet.text(LEFT - 8, label(scenario, line), size=11, end=True)
        length = line.spread.median / most * BAR
        colour = OURS if line.mode.peer == US else THEIRS
        sheet.bar(LEFT, length, colour)
        sheet.text(round(LEFT + length + 6), f"{line.spread.median:,.0f}", size=11)


def label(scenario: Scenario, line: Line) -> str:
    if scenario.is_live:
        return line.mode.title
    name = f"{line.mode.title} {line.mode.name}"
    if scenario.has_two_shapes and line.mode.peer == US:
        name += ", send" if line.shape == "pipeline" else ", calls"
    return f"{name} ({IN_WORDS[line.mode.durability].partition(' before')[0]})"

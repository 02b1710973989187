"""What a run found, as Markdown, and its place in docs/benchmarks.md between two marks."""

from __future__ import annotations

from collections.abc import Sequence

from .install import CLIENTS_OF
from .modes import BARE, IN_WORDS, TITLES, US
from .results import Line, Results, Spread, server_title
from .scenarios import Scenario

BEGIN = "<!-- figures: written by python -m benchmarks.peers --write-docs; do not edit -->"
END = "<!-- figures: end -->"
CLUSTER_BEGIN = BEGIN.replace("peers --write", "peers --cluster --write")


def into_page(page: str, figures: str, mark: str = BEGIN) -> str:
    """A page with other figures."""
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for figures: it needs {mark!r} and {END!r}")
    return f"{before}{mark}\n\n{figures}\n\n{END}{after}"


def figures_of(page: str, mark: str = BEGIN) -> str:
    return page.partition(mark)[2].partition(END)[0].strip()


def render(results: Results, picture: str = "") -> str:
    """The whole of a run: overview, what is not as wanted, each scenario, memory, machine."""
    parts = [_missing(results), _overview(results), _not_ahead(results), _slower(results)]
    if picture:
        parts.append(f"![FlintMQ beside its peers]({picture})")
    for scenario in results.scenarios():
        parts.append(f"### {scenario.title}\n\n{_scenario(results, scenario)}")
    parts += [_memory(results), _machine(results)]
    return "\n\n".join(part for part in parts if part)


def _missing(results: Results) -> str:
    return "\n\n".join(
        f"**{TITLES[peer]} is MISSING from this run: {reason}**"
        for peer, reason in results.missing.items()
    )


def _overview(results: Results) -> str:
    peers = [*results.peers(), *results.missing]
    if not peers:
        return ""
    rows = [["", *(TITLES[peer] for peer in peers), "wanted"]]
    for scenario in results.scenarios():
        cells = []
        for peer in peers:
            verdict = results.worst(scenario, peer)
            if peer in results.missing:
                cells.append("MISSING")
            elif verdict is None:
                cells.append("-")
            else:
                shown = f"{verdict.ratio:.2f}"
                cells.append(shown if verdict.is_met else f"**{shown}**")
        rows.append([scenario.title, *cells, scenario.goal])
    return (
        "FlintMQ's figure over the peer's at equal durability, the worst of its durabilities "
        "(above 1: FlintMQ is ahead, for latency too; bold: not as wanted):\n\n" + _table(rows)
    )


def _not_ahead(results: Results) -> str:
    found = results.not_ahead()
    if not results.peers():
        return ""
    if not found:
        return "In this run FlintMQ is as wanted in every line."
    lines = [
        f"- {scenario.title}: {line.mode.title}, {line.mode.settings}: {line.verdict.ratio:.2f}"
        for scenario, line in found
        if line.verdict is not None
    ]
    return "Where FlintMQ is **not** as wanted:\n\n" + "\n".join(lines)


def _slower(results: Results) -> str:
    """Every row we lose, also those where that is as wanted."""
    lines = []
    for scenario in results.scenarios():
        worst = {peer: results.worst(scenario, peer) for peer in results.peers()}
        lost = [
            f"{TITLES[peer]} {verdict.ratio:.2f}"
            for peer, verdict in worst.items()
            if verdict is not None and verdict.ratio < 1
        ]
        if lost:
            lines.append(f"- {scenario.title}: {', '.join(lost)}")
    return "Where FlintMQ is slower than a peer:\n\n" + "\n".join(lines) if lines else ""


def _scenario(results: Results, scenario: Scenario) -> str:
    unit = "p50 µs" if scenario.is_latency else "msgs/s"
    heading = ["broker", "durability", "how", unit]
    if scenario.is_latency:
        heading.append("p99 µs")
    if scenario.kind == "open loop":
        heading += ["p99.9 µs", "msgs/s offered"]
    lines = list(results.lines(scenario))
    has_server = any(line.server for line in lines)
    if has_server:
        heading.append("server µs each")
    heading += ["FlintMQ over it", ""]
    rows = [heading]
    for line in lines:
        rows.append(_cells(scenario, line, has_server))
    remarks = _remarks(results, scenario)
    return _table(rows) + (f"\n\n{remarks}" if remarks else "")


def _cells(scenario: Scenario, line: Line, has_server: bool) -> list[str]:
    durability = "at most once" if scenario.is_live else IN_WORDS[line.mode.durability]
    cells = [line.mode.title, durability, _how(scenario, line)]
    cells.append(f"failed: {line.error}" if line.spread is None else _shown(line.spread))
    if scenario.is_latency:
        cells.append("" if line.p99 is None else _shown(line.p99))
    if scenario.kind == "open loop":
        cells += ["" if one is None else _shown(one) for one in (line.p999, line.offered)]
    if has_server:
        cells.append("" if line.server is None else f"{line.server.median:.1f}")
    if line.verdict is None:
        return [*cells, "", ""]
    return [*cells, f"{line.verdict.ratio:.2f}", line.verdict.words]


def _how(scenario: Scenario, line: Line) -> str:
    if scenario.is_live:
        return LIVE_PATHS[line.mode.peer]
    how = line.mode.settings
    if scenario.has_two_shapes and line.mode.peer == US:
        how += f", {OUR_SHAPES[scenario.kind, line.shape]}"
    return how


OUR_SHAPES = {
    ("publish", "calls"): "`await publish`",
    ("publish", "pipeline"): "`send` and `flush`",
    ("batches", "calls"): "`publish_batch`, 16 at once",
    ("batches", "pipeline"): "`send`, 60,000 under way",
}


LIVE_PATHS = {
    US: "`publisher.send(qos=0)`, `live`",
    "nats": "core NATS",
    "redis": "PUBLISH in pipelines of 100",
    "rabbitmq": "fanout exchange, no confirms, no acks",
    "mosquitto": "QoS 0",
    BARE: "socket to sockets",
}


def _remarks(results: Results, scenario: Scenario) -> str:
    """What a line cannot say: who is left out and why, what a mode is really worth."""
    said = []
    present = {*results.peers(), US, BARE}
    for mode in results.modes:
        if mode.peer not in present:
            continue
        why = scenario.why_not(mode)
        if why and mode.peer != BARE and (scenario.takes(mode) or mode.name == "default"):
            said.append(f"{mode.title}, {mode.settings}: not measured, it {_verb(why)}.")
        if mode.remark and scenario.takes(mode) and not why:
            said.append(f"{mode.title}, {mode.settings}: {mode.remark}.")
    return " ".join(said)


def _verb(why: str) -> str:
    return "has no such path, as every path of it stores" if why.startswith("every path") else why


def _memory(results: Results) -> str:
    rows = [["server", "MiB at rest", "MiB under load"]]
    for server, rest, most in results.memory():
        if server != BARE:
            rows.append([server_title(server), f"{rest:.0f}", f"{most:.0f}" if most else "-"])
    if len(rows) == 1:
        return ""
    return (
        "### Memory of the servers\n\n"
        "Resident, with everything a server has started: before anything was asked of it, and the "
        "most while batches came in, when a faster server holds more.\n\n" + _table(rows)
    )


def _machine(results: Results) -> str:
    facts = results.facts
    versions = ", ".join(
        f"{TITLES[peer]} {version} ({CLIENTS_OF[peer]})"
        for peer, version in facts.get("versions", {}).items()
    )
    lines = [
        f"- Machine: {facts['cores']} cores{_of(facts.get('processor'))}, {facts['system']}, "
        f"{facts['python']}; load average at the start "
        f"{', '.join(f'{one:.2f}' for one in facts['load_average_at_start']) or 'unknown'}; "
        f"taken by the host meanwhile {facts.get('stolen', 0.0):.0%}.",
        f"- Run: rounds {facts['rounds']}, {facts['seconds']:g} s for each figure, medians "
        f"(smallest to largest); {facts.get('minutes', 0.0):.1f} minutes; "
        f"{facts.get('date', '')}.",
    ]
    if versions:
        lines.append(f"- Peers: {versions}.")
    if facts.get("quick"):
        lines.insert(0, "- **A quick run: its figures mean nothing.**")
    return "### Machine and run\n\n" + "\n".join(lines)


def _of(processor: str | None) -> str:
    return f" ({processor})" if processor else ""


def _shown(spread: Spread) -> str:
    if spread.min == spread.max:
        return f"{spread.median:,.0f}"
    return f"{spread.median:,.0f} ({spread.min:,.0f} to {spread.max:,.0f})"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body]
    return "\n".join(lines)

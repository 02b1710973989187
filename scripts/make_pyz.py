"""Makes flintmq.pyz: the broker with everything it needs in one file, for one kind of machine.

    python scripts/make_pyz.py dist/flintmq-0.1.0-py3-none-any.whl dist/flintmq.pyz

The wheel is installed with its `server` extra into a directory, which goes into the archive with
`pyz_main.py` in front. Compiled modules cannot be imported from an archive, so that one unpacks it
into a cache at its first start. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHEBANG = b"#!/usr/bin/env python3\n"

LEFT_OUT = frozenset({".c", ".h", ".pyx", ".pxd", ".pxi", ".pyc"})
"""Sources of compiled modules, and what Python writes by itself."""
OF_THE_INSTALLER = frozenset({"RECORD", "direct_url.json", "INSTALLER", "REQUESTED"})
"""They name places on the machine it was built on."""


def installed(wheel: Path, directory: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-compile", "--target", str(directory)),
            *("-c", str(HERE.parent / "constraints.txt"), f"{wheel}[server]"),
        ],
        check=True,
    )


def chosen(directory: Path) -> Iterator[tuple[str, bytes]]:
    """What goes into the archive, in an order that is always the same."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if (
            path.is_file()
            and path.suffix not in LEFT_OUT
            and not name.startswith("bin/")
            and not (path.parent.suffix == ".dist-info" and path.name in OF_THE_INSTALLER)
        ):
            yield name, path.read_bytes()


def written(files: list[tuple[str, bytes]], out: Path) -> None:
    content = hashlib.sha256()
    for name, data in files:
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    made_for = {
        "hash": content.hexdigest()[:32],
        "implementation": platform.python_implementation(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "platform": sysconfig.get_platform(),
    }
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    members = [
        ("__main__.py", (HERE / "pyz_main.py").read_bytes()),
        ("made_for.json", json.dumps(made_for, sort_keys=True).encode()),
        *((f"site/{name}", data) for name, data in files),
    ]
    with out.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in members:
                member = zipfile.ZipInfo(name, stamp)
                member.external_attr = 0o644 << 16
                archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    out.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        installed(wanted.wheel.resolve(), Path(directory))
        written(list(chosen(Path(directory))), wanted.out)


if __name__ == "__main__":
    main()

"""What flintmq.pyz does first: unpack itself into a cache, once, and go on from there.

The directory is named by what is in the archive, and appears in one step, so many may start at
once, and another version never meets the files of this one.
"""

from __future__ import annotations

import compileall
import json
import os
import platform
import py_compile
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import NoReturn

SITE = "site/"


def fail(why: str) -> NoReturn:
    print(f"flintmq.pyz: {why}", file=sys.stderr)
    raise SystemExit(1)


def check(made_for: dict[str, str]) -> None:
    ours = (
        platform.python_implementation(),
        f"{sys.version_info.major}.{sys.version_info.minor}",
        sysconfig.get_platform(),
    )
    theirs = (made_for["implementation"], made_for["python"], made_for["platform"])
    if ours != theirs:
        fail(
            f"made for {' '.join(theirs)}, and this is {' '.join(ours)}; start it with that "
            "Python, or install FlintMQ with pip, or make one here with scripts/build"
        )


def cache() -> Path:
    """Where this user keeps what can be made again. Code is run from there: it has to be ours."""
    named = os.environ.get("FLINTMQ_PYZ_CACHE")
    if named:
        place = Path(named)
    else:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        place = Path(home) / "flintmq"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
    except OSError as error:
        fail(
            f"cannot unpack into {place}: {error.strerror}; "
            "name a directory of yours in FLINTMQ_PYZ_CACHE"
        )
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        fail(f"{place} belongs to another user; name one of yours in FLINTMQ_PYZ_CACHE")
    if hasattr(os, "getuid") and found.st_mode & 0o022:
        fail(f"others may write to {place}; chmod go-w it, or name another in FLINTMQ_PYZ_CACHE")
    return place


def unpacked(archive: zipfile.ZipFile, place: Path) -> Path:
    done = place / str(json.loads(archive.read("made_for.json"))["hash"])
    if done.is_dir():
        return done
    partly = place / f".{done.name}.{os.getpid()}"
    shutil.rmtree(partly, ignore_errors=True)
    try:
        for member in archive.infolist():
            if member.filename.startswith(SITE):
                path = partly / member.filename.removeprefix(SITE)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))
        # Here, once: whoever runs it may not be allowed to write later, or not want to.
        compileall.compile_dir(
            partly,
            quiet=2,
            stripdir=partly,
            prependdir=done,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        os.rename(partly, done)
    except OSError as error:
        shutil.rmtree(partly, ignore_errors=True)
        if not done.is_dir():  # else somebody was faster
            fail(f"cannot unpack into {place}: {error.strerror}")
    return done


def main() -> None:
    with zipfile.ZipFile(
        sys.argv[0] if zipfile.is_zipfile(sys.argv[0]) else sys.path[0]
    ) as archive:
        check(json.loads(archive.read("made_for.json")))
        site = unpacked(archive, cache())
    sys.path[0] = str(site)
    from flintmq.cli import main as run

    run()


if __name__ == "__main__":
    main()

"""`flintmq sub --group` into readers that are slow, that go early and that stop it.

What a reader got is what was acknowledged, byte for byte, and the rest is there for the next one.

    .venv/bin/python -m tests.cli.slow_readers                    2,000,000 lines, 64 MB messages
    .venv/bin/python -m tests.cli.slow_readers --lines 20000 --large 5 --pause 1

A broker of its own, on this machine only. Prints a line for each reader and each way of running;
the exit code is 1 where one was wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import flintmq
from tests.serving import serving

FLINTMQ = f"{sys.executable} -m flintmq.cli"
SLACK = 1000
"""After the first thousand, a reader may have taken a thousandth more than it used."""


class Way(NamedTuple):
    """How the command is run."""

    uvloop: bool
    unbuffered: bool

    def __str__(self) -> str:
        loop = "uvloop" if self.uvloop else "asyncio"
        return loop + (" unbuffered" if self.unbuffered else "")

    def environment(self, url: str, without_uvloop: Path) -> dict[str, str]:
        found = {**os.environ, "FLINTMQ_SERVER": url}
        found.pop("PYTHONUNBUFFERED", None)
        if self.unbuffered:
            found["PYTHONUNBUFFERED"] = "1"
        if not self.uvloop:
            found["PYTHONPATH"] = os.pathsep.join(
                [str(without_uvloop), *filter(None, [os.environ.get("PYTHONPATH")])]
            )
        return found


WAYS = [Way(uvloop, unbuffered) for uvloop in (True, False) for unbuffered in (False, True)]


class Reader(NamedTuple):
    """What stands behind the pipe, in bash; OUT is where it puts what it got, STOP ends `sub`."""

    name: str
    command: str
    topic: str = "lines"
    is_stopping: bool = False
    is_large: bool = False
    uses_all: bool = True
    """Whether everything it takes of the pipe comes out of it; `head` takes a block at a time."""


def readers(pause: float) -> Iterator[Reader]:
    if shutil.which("jq"):
        yield Reader("jq", "jq -c . > OUT")
    else:
        print("NOT TESTED: jq is not installed")
    yield Reader("while read", r"while read -r line; do printf '%s\n' $line; done > OUT")
    yield Reader("sleep, then cat", f"(sleep {pause:g}; cat > OUT)")
    yield Reader("head -1", "head -1 > OUT")
    yield Reader("head -1000", "head -1000 > OUT")
    yield Reader("head -5000", "head -5000 > OUT", uses_all=False)
    few = "for n in {1..1500}; do read -r line; printf '%s\\n' $line; done > OUT"
    yield Reader("read 1,500 and go", few)
    slow = r"while read -r line; do printf '%s\n' $line; [ $line = 30 ] && STOP; done > OUT"
    yield Reader("slow; sub is stopped", slow, is_stopping=True)
    nobody = "(read -r -n 1 letter; STOP; sleep 1; : > OUT)"
    yield Reader("nobody reads; sub is stopped", nobody, is_stopping=True)
    yield Reader("large: cat", "cat > OUT", "large", is_large=True)
    yield Reader("large: sleep, then cat", f"(sleep {pause:g}; cat > OUT)", "large", is_large=True)
    yield Reader("large: one line", "head -1 > OUT", "large", is_large=True)


class Topics(NamedTuple):
    """What was published, and what a reader has to have got after so many messages."""

    lines: int
    larges: list[bytes]

    def expected(self, reader: Reader, count: int) -> Iterator[bytes]:
        if reader.is_large:
            for value in self.larges[:count]:
                yield value
                yield b"\n"
            return
        for start in range(0, count, 10_000):
            yield b"".join(b"%d\n" % n for n in range(start, min(count, start + 10_000)))

    def total(self, reader: Reader) -> int:
        return len(self.larges) if reader.is_large else self.lines


def published(mq: flintmq.BlockingClient, lines: int, large_bytes: int) -> Topics:
    for start in range(0, lines, 20_000):
        mq.publish_batch("lines", [b"%d" % n for n in range(start, min(lines, start + 20_000))])
    larges = [bytes([65 + n]) * (large_bytes - n) for n in range(3)]
    for value in larges:
        mq.publish("large", value)
    return Topics(lines, larges)


def digest(parts: Iterator[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            yield block


def lines_in(path: Path) -> int:
    return sum(block.count(b"\n") for block in blocks(path))


def tried(
    mq: flintmq.BlockingClient, topics: Topics, reader: Reader, way: Way, url: str, directory: Path
) -> str:
    """What was wrong with it, or nothing."""
    out = directory / "out"
    out.unlink(missing_ok=True)
    group = f"{reader.name} {way}".translate({ord(letter): "-" for letter in " ,;:"})
    sub = f"{FLINTMQ} sub {reader.topic} --group {group}"
    command = f"{{ echo $BASHPID > OUT.pid; exec {sub}; }} | {reader.command}"
    command = f"{command}\necho ${{PIPESTATUS[0]}}".replace("STOP", "kill $(cat OUT.pid)")
    done = subprocess.run(
        ["bash", "-c", command.replace("OUT", str(out))],
        env=way.environment(url, directory / "without"),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    code = int(done.stdout.split()[-1])
    stats = mq.group_stats(reader.topic, group)
    got, total = lines_in(out), topics.total(reader)
    acked = total - stats.lag
    wrong: list[str] = []
    if code != (143 if reader.is_stopping else 0) or bool(done.stderr) != reader.is_stopping:
        wrong.append(f"exit code {code}: {done.stderr.strip()}")
    if digest(blocks(out)) != digest(topics.expected(reader, got)):
        wrong.append(f"{out.stat().st_size:,} bytes are not those of the first {got:,} messages")
    slack = 0 if reader.uses_all else got // SLACK
    if not got <= acked <= got + slack:
        wrong.append(f"{acked:,} are acknowledged, not {got:,}")
    if stats.in_flight:
        wrong.append(f"{stats.in_flight:,} were not given back")
    if acked < total:
        (following,) = mq.poll(reader.topic, group, 1)
        if following.offset != acked or following.delivery_count > 1 + reader.is_large:
            wrong.append(f"the next is {following!r}, not offset {acked:,}")
        following.nack()
    print(
        f"{'WRONG' if wrong else 'ok':5}  {reader.name:29} {way!s:19} "
        f"printed {got:>9,}  acknowledged {acked:>9,}  {'; '.join(wrong)}",
        flush=True,
    )
    return "; ".join(wrong)


def run(
    lines: int,
    large_mb: float,
    pause: float,
    ways: list[Way],
    only: Callable[[Reader], bool] = bool,
) -> list[str]:
    """Every reader in every way; what was wrong."""
    with tempfile.TemporaryDirectory(prefix="flintmq-readers-") as name:
        directory = Path(name)
        (directory / "without").mkdir()
        (directory / "without/uvloop.py").write_text("raise ImportError\n")
        with serving(directory / "data") as url, flintmq.connect_sync(url) as mq:
            topics = published(mq, lines, int(large_mb * 1_000_000))
            return [
                f"{reader.name}, {way}: {wrong}"
                for reader in readers(pause)
                if only(reader)
                for way in ways
                if (wrong := tried(mq, topics, reader, way, url, directory))
            ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--large", type=float, default=64, help="size of large messages in MB")
    parser.add_argument("--pause", type=float, default=5, help="seconds before a late reader reads")
    parser.add_argument("--only", default="", help="readers whose name contains this")
    arguments = parser.parse_args()
    began = time.perf_counter()
    wrong = run(
        arguments.lines,
        arguments.large,
        arguments.pause,
        WAYS,
        lambda reader: arguments.only in reader.name,
    )
    print(f"{time.perf_counter() - began:.0f} s; {len(wrong)} were wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

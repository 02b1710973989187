"""A broker, events that become results on it, and then the same broker to try the command line on.

The second half of `make run`. Its data is in a directory of its own that is gone afterwards. In a
terminal the broker stays up for a while, with --stay until Ctrl-C; elsewhere it says what to type,
and ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import live_rollup

DEFAULT = ("127.0.0.1", 7600)
RESULT_SECONDS = 20.0
STAY_SECONDS = 600.0
NEXT = """\
  {flintmq} pub orders '{{"id": 42}}' --key 42 -H region:eu
  {flintmq} sub orders
  seq 1 1000 | {flintmq} pub numbers --lines
  {flintmq} sub numbers --group workers --count 5
  {flintmq} group ls
  {flintmq} copy numbers numbers.copy
  {flintmq} bench pubsub --messages 20000
  {flintmq} top
"""


def is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind(address)
        except OSError:
            return False
    return True


def command() -> str:
    """How this FlintMQ is called from here."""
    beside = Path(sys.executable).parent / "flintmq"
    try:
        return str(beside.relative_to(Path.cwd()))
    except ValueError:
        return str(beside)


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def broker(listen: str, http: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A broker with its data in a directory of its own; its process and its two addresses."""
    with tempfile.TemporaryDirectory(prefix="flintmq-") as place:
        arguments = ["serve", "--data-dir", place, "--listen", listen, "--http", http]
        # A session of its own: Ctrl-C is for us, and we tell the broker, once.
        process = subprocess.Popen(
            [sys.executable, "-m", "flintmq.cli", *arguments, "--log-level", "warning"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "ready at" not in line:
                raise SystemExit(process.wait() or 1)
            url, web = line.strip().split("ready at ")[1].split(", ")[:2]
            yield process, url, web
        finally:
            process.terminate()
            process.wait()


def stay_up(process: subprocess.Popen[str], url: str, web: str, seconds: float | None) -> int:
    heading("A broker is up: try it in another terminal, from this directory")
    if url != f"flint://{DEFAULT[0]}:{DEFAULT[1]}":
        print(f"  export FLINTMQ_SERVER={url}")
    print(NEXT.format(flintmq=command()) + f"  curl {web}/metrics")
    print(f"\nThe console, in a browser: {web}/")
    how_long = "" if seconds is None else f", and so do {seconds / 60:.0f} minutes (--stay: no end)"
    print(f"\nCtrl-C ends it{how_long}. docs/cli.md has the rest.", flush=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/run", description=__doc__)
    parser.add_argument("--stay", action="store_true", help="keep the broker up until Ctrl-C")
    parser.add_argument("--no-spark", action="store_true", help="leave out the pipeline")
    parser.add_argument(
        "--cluster", action="store_true", help="show three nodes that lose their leader, instead"
    )
    parser.add_argument(
        "--seconds", type=float, default=RESULT_SECONDS, help="how long results are shown"
    )
    parser.add_argument("--listen", help="where, if not at port 7600")
    parser.add_argument("--http", help="where, if not at port 7601")
    given = parser.parse_args()
    somebody_looks = sys.stdout.isatty() and not os.environ.get("CI")
    listen = given.listen or at_or_any(DEFAULT[1])
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, leave)
    try:
        with broker(listen, given.http or at_or_any(DEFAULT[1] + 1)) as (process, url, web):
            if not given.no_spark:
                heading("Orders arrive at a broker, and a Spark pipeline sums them up as they come")
                if code := live_rollup.show(url, given.seconds):
                    return code
            if given.stay or somebody_looks:
                return stay_up(process, url, web, None if given.stay else STAY_SECONDS)
    except KeyboardInterrupt:
        return 0
    heading("What to try next, on the command line")
    print(f"  {command()} serve --data-dir ./flint-data &")
    print(NEXT.format(flintmq=command()), end="")
    return 0


def at_or_any(port: int) -> str:
    """That port if it is free, else any."""
    return f"{DEFAULT[0]}:{port if is_free((DEFAULT[0], port)) else 0}"


if __name__ == "__main__":
    sys.exit(main())

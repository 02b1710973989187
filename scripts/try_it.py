"""A broker to try the command line on: starts it, says what to type, and keeps it up until Ctrl-C.

The end of `make run`. Its data is in a directory of its own that is gone afterwards. Where nobody
looks (no terminal, no --stay) it only says what to type, and ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

DEFAULT = ("127.0.0.1", 7600)
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


def stay_up(listen: str, http: str) -> int:
    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # SIGINT as well: what a script starts in the background is born ignoring it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    with tempfile.TemporaryDirectory(prefix="flintmq-") as place:
        arguments = ["serve", "--data-dir", place, "--listen", listen, "--http", http]
        # A session of its own: Ctrl-C is for us, and we tell the broker, once.
        broker = subprocess.Popen(
            [sys.executable, "-m", "flintmq.cli", *arguments, "--log-level", "warning"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert broker.stdout is not None
            line = broker.stdout.readline()
            if "ready at" not in line:
                return broker.wait()
            url, web = line.split("ready at ")[1].split(", ")[:2]
            heading("A broker is up: try it in another terminal, from this directory")
            if url != f"flint://{DEFAULT[0]}:{DEFAULT[1]}":
                print(f"  export FLINTMQ_SERVER={url}")
            print(NEXT.format(flintmq=command()) + f"  curl {web}/metrics")
            print("\nCtrl-C ends it. docs/cli.md has the rest.", flush=True)
            return broker.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            broker.terminate()
            broker.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/run", description=__doc__)
    parser.add_argument("--stay", action="store_true", help="keep it up without a terminal too")
    parser.add_argument("--listen", help="where, if not at port 7600")
    parser.add_argument("--http", help="where, if not at port 7601")
    given = parser.parse_args()
    if given.stay or (sys.stdout.isatty() and not os.environ.get("CI")):
        free = is_free(DEFAULT)
        listen = given.listen or ("127.0.0.1:7600" if free else "127.0.0.1:0")
        web = is_free((DEFAULT[0], DEFAULT[1] + 1))
        return stay_up(listen, given.http or ("127.0.0.1:7601" if web else "127.0.0.1:0"))
    heading("What to try next, on the command line")
    print(f"  {command()} serve --data-dir ./flint-data &")
    print(NEXT.format(flintmq=command()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

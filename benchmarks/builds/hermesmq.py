"""HermesMQ's own daemon, built by cargo into .peers where cargo is there, and a group of one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..hermes_front import Address, Wire, frame, produce, text
from ..installing import PEERS, CannotInstall, run
from ..processes import free_port, server

VERSION = "0.6.5"
FOLDER = PEERS / "hermesmq"
LEADS_WITHIN_SECONDS = 20.0


def install() -> Path:
    """Raises CannotInstall."""
    program = FOLDER / "bin" / "hermesmqd"
    if not program.exists():
        cargo = shutil.which("cargo")
        if cargo is None:
            raise CannotInstall("cargo is not installed; install Rust to compare with HermesMQ")
        command = [cargo, "install", "hermesmqd", "--version", VERSION, "--root", str(FOLDER)]
        run(command, PEERS, f"hermesmqd {VERSION}")
    return program


@contextmanager
def hermesmqd(program: Path) -> Iterator[Address]:
    port, peer = free_port(), f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        command = [
            *(str(program), "--data-dir", str(place / "data"), "--peer-addr", peer),
            *("--client-addr", f"127.0.0.1:{port}", "--metrics-enabled", "false"),
        ]
        with server(command, place / "log", port=port):
            address = ("127.0.0.1", port)
            _found(address, peer)
            yield address


def _found(address: Address, peer: str) -> None:
    """Make it a cluster of one, and wait until it takes a message: it answers as to any other."""
    node = b"\x08\x01" + text(2, peer.encode())
    give_up_at = time.monotonic() + LEADS_WITHIN_SECONDS
    with Wire(address) as wire:
        wire.call(frame(9, text(1, node)))
        first = wire.call(produce(b"ready"))
        while not first.startswith(b"\x0a"):
            if time.monotonic() > give_up_at:
                raise CannotInstall(f"hermesmqd does not take messages: {first!r}")
            time.sleep(0.05)
            first = wire.call(produce(b"ready"))


def main() -> None:
    subprocess.run([str(install()), "--version"], check=True)


if __name__ == "__main__":
    main()

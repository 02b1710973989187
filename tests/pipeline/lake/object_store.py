"""A real S3 server for tests: `s3s-fs`, a program of its own; BUILD says where it comes from."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

PROGRAM = "s3s-fs"
VARIABLE = "FLINTMQ_TEST_S3_SERVER"
BUILD = f"cargo install {PROGRAM} --version 0.14.1 --features binary --locked --root .venv"
KEY, SECRET = "flintmq", "a-secret-of-tests"


def program() -> str | None:
    """Its path: FLINTMQ_TEST_S3_SERVER, or beside this Python, or on PATH."""
    beside = Path(sys.executable).parent
    return os.environ.get(VARIABLE) or shutil.which(PROGRAM, path=beside) or shutil.which(PROGRAM)


class ObjectStore:
    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory

    def bucket(self, name: str) -> str:
        """Buckets are directories of the server."""
        (self.directory / name).mkdir(parents=True, exist_ok=True)
        return name

    @property
    def of_delta(self) -> Mapping[str, str]:
        return {
            "aws_endpoint_url": self.url,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    @property
    def of_iceberg(self) -> Mapping[str, str]:
        return {
            "s3.endpoint": self.url,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }


@contextmanager
def serving(directory: Path, port: int = 0) -> Iterator[ObjectStore]:
    found = program()
    assert found is not None, f"there is no {PROGRAM}: {BUILD}, or set {VARIABLE}"
    directory.mkdir(parents=True, exist_ok=True)
    if not port:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    with (directory.parent / "s3.log").open("a") as log:
        process = subprocess.Popen(
            [
                *(found, "--host", "127.0.0.1", "--port", str(port)),
                *("--access-key", KEY, "--secret-key", SECRET, str(directory)),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        give_up_at = time.monotonic() + 60
        while True:
            with closing(socket.socket()) as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"{PROGRAM} ended: {log.name}"
            assert time.monotonic() < give_up_at, f"{PROGRAM} does not listen: {log.name}"
            time.sleep(0.02)
        yield ObjectStore(f"http://127.0.0.1:{port}", directory)
    finally:
        process.kill()
        process.wait()

"""Checkpoints: the directory of a flow, with Spark's files and ours.

    <checkpoint>/<flow>/                    offsets, commits and state of Spark
    <checkpoint>/<flow>/flintmq-flow.json   the definition of the flow (`resuming`)
    <checkpoint>/.<flow>.lock               locked by the Java that writes here, while it runs

A checkpoint may be wherever Spark can write: paths with a scheme (`hdfs://`, `s3a://`) are reached
through Spark's file systems, and have no lock.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InvalidRequest
from ...spark.session import jvm_of
from .frames import has_scheme, java_session, path_of
from .landing import replacing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = "flintmq-flow.json"
LOCK_SECONDS = 15.0
"""How long to wait for the Java of a killed run to end."""


class FlowDirectory(Protocol):
    """A directory on any file system."""

    path: str

    def read(self, name: str) -> str | None: ...
    def write(self, name: str, text: str) -> None: ...
    def names(self, name: str = "") -> list[str]: ...
    def remove(self) -> None: ...
    def set_aside(self) -> str: ...


def directory(spark: SparkSession, path: str) -> FlowDirectory:
    return _OfSpark(spark, path) if has_scheme(path) else _Local(Path(path_of(path)))


def checkpoint_of(spark: SparkSession, root: str, flow: str) -> FlowDirectory:
    return directory(spark, f"{path_of(root).rstrip('/')}/{flow}")


def aside(path: str) -> str:
    return f"{path.rstrip('/')}.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


class _Local:
    def __init__(self, path: Path) -> None:
        self._path, self.path = path, str(path)

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        with replacing(self._path / name) as file:
            file.write(text.encode())

    def names(self, name: str = "") -> list[str]:
        try:
            return os.listdir(self._path / name)
        except FileNotFoundError:
            return []

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path)

    def set_aside(self) -> str:
        self._path.rename(new := aside(self.path))
        return new


class _OfSpark:
    """Through Hadoop's file systems, as Spark uses them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._java = jvm_of(spark)
        settings = java_session(spark).sessionState().newHadoopConf()
        self._system = self._at("").getFileSystem(settings)

    def _at(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self.path}/{name}".rstrip("/"))

    def read(self, name: str) -> str | None:
        if not self._system.exists(self._at(name)):
            return None
        with closing(self._system.open(self._at(name))) as opened:
            return bytes(opened.readAllBytes()).decode()

    def write(self, name: str, text: str) -> None:
        new = self._at(f".{name}.new")
        with closing(self._system.create(new, True)) as created:
            created.write(bytearray(text.encode()))
        self._system.delete(self._at(name), False)
        self._system.rename(new, self._at(name))

    def names(self, name: str = "") -> list[str]:
        if not self._system.exists(self._at(name)):
            return []
        return [one.getPath().getName() for one in self._system.listStatus(self._at(name))]

    def remove(self) -> None:
        self._system.delete(self._at(""), True)

    def set_aside(self) -> str:
        new = aside(self.path)
        self._system.rename(self._at(""), self._java.org.apache.hadoop.fs.Path(new))
        return new


class CheckpointLock:
    """Prevents two runs on one checkpoint. Java holds the lock, since it writes there, and may
    outlive a killed driver for a moment."""

    def __init__(self, spark: SparkSession, root: str, flow: str) -> None:
        self._file: Any = None
        if has_scheme(root):
            return  # Spark checks this itself there
        path = Path(path_of(root)) / f".{flow}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = jvm_of(spark).java.io.RandomAccessFile(str(path), "rw")
        give_up_at = time.monotonic() + LOCK_SECONDS
        while not self._is_ours():
            holder = path.read_text().strip()
            if holder == str(os.getpid()) or time.monotonic() >= give_up_at:
                self.release()
                raise InvalidRequest(
                    f"process {holder or '?'} already runs flow {flow!r} with the checkpoint in "
                    f"{path.parent}: stop it, or use another --checkpoint"
                )
            time.sleep(0.1)
        path.write_text(f"{os.getpid()}\n")

    def _is_ours(self) -> bool:
        try:
            return self._file.getChannel().tryLock() is not None
        except Exception as error:
            if "OverlappingFileLockException" in str(error):
                return False  # another run of this process
            raise

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

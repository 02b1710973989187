"""A Spark cluster on loopback: a master and two workers, as they would be on machines of their own.

    python -m tests.spark.cluster pytest -m spark tests/spark

Runs a command with FLINTMQ_TEST_MASTER set to it. Spark runs second copies of slow tasks on another
host only, so the workers have an address each; and room for two drivers, as some tests start one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from flintmq.spark.java import find_java
from flintmq.spark.jvm import OPTIONS, shim
from tests.patience import free_port

HOSTS = ("127.0.0.1", "127.0.0.2")
READY_SECONDS = 120.0


class Cluster:
    def __init__(self, directory: Path) -> None:
        self._java = find_java()
        self._spark_home = Path(str(import_module("pyspark").__file__)).parent
        home = self._java.home if self._java.has_vector_module else shim(self._java, directory)
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(self._spark_home),
            "SPARK_SCALA_VERSION": "2.13",
        }
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        port, page = free_port(), free_port()
        self.master = f"spark://{HOSTS[0]}:{port}"
        self._run(
            "master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", str(page)
        )
        _wait_for(HOSTS[0], port)
        for number, host in enumerate(HOSTS):
            self._run(
                "worker.Worker",
                *("--host", host, "--port", "0", "--webui-port", "0"),
                *("--cores", "2", "--memory", "3g"),
                *("--work-dir", str(self._directory / f"work-{number}"), self.master),
            )

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def _run(self, name: str, *arguments: str) -> None:
        log = (self._directory / f"{name}-{len(self._processes)}.log").open("wb")
        with log:
            self._processes.append(
                subprocess.Popen(
                    [
                        *(str(self._java.executable), *OPTIONS, "-Xmx512m"),
                        *("-cp", str(self._spark_home / "jars" / "*")),
                        *(f"org.apache.spark.deploy.{name}", *arguments),
                    ],
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )
            )


def _wait_for(host: str, port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="flintmq-cluster-") as directory:
        cluster = Cluster(Path(directory))
        try:
            cluster.start()
            environment = {**os.environ, "FLINTMQ_TEST_MASTER": cluster.master}
            return subprocess.run(sys.argv[1:], env=environment).returncode
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.exit(main())

"""What Spark's own Kafka source needs, in a folder of its own, apart from our environment.

Spark's connector of the newest version that can be had is older than the Spark we are made for, so
it gets a Python environment with the PySpark it belongs to. Maven fetches the jars; its settings
say from where.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).parent.parent / ".peers"
PYSPARK = "4.2.0"
KAFKA = "4.3.1"
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PYSPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
)
"""Taken without what they depend on: that is PySpark's, or below."""
CONNECTOR_NEEDS = (
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)
BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-nop:1.7.36")

PYTHON = PEERS / "kafka-python" / "bin" / "python"
CONNECTOR_JARS = PEERS / "kafka-connector"
BROKER_JARS = PEERS / "kafka-broker"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>flintmq</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class CannotInstall(Exception):
    """The peer cannot be had here; the text says what was tried."""


def install() -> None:
    """See to it that everything is there. What is there already is left alone."""
    if not BROKER_JARS.exists():
        _jars(BROKER_JARS, needed=BROKER)
    if not CONNECTOR_JARS.exists():
        _jars(CONNECTOR_JARS, alone=CONNECTOR, needed=CONNECTOR_NEEDS)
    if not (PEERS / "kafka-python" / ".complete").exists():
        _python()


def _jars(folder: Path, *, needed: tuple[str, ...], alone: tuple[str, ...] = ()) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotInstall("there is no mvn on PATH, which fetches Kafka's jars")
    work = folder.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    wanted = [_dependency(one) for one in needed] + [_dependency(one, _ALONE) for one in alone]
    (work / "pom.xml").write_text(_POM.format("\n".join(wanted)))
    command = [
        maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
        f"-DoutputDirectory={work / 'jars'}",
    ]  # fmt: skip
    _run(command, work, f"jars {', '.join(alone + needed)}")
    shutil.move(work / "jars", folder)
    shutil.rmtree(work)


def _dependency(coordinates: str, more: str = "") -> str:
    group, artifact, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{more}</dependency>"
    )


def _python() -> None:
    folder = PEERS / "kafka-python"
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], PEERS, "an environment")
    _run(
        [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", f"pyspark=={PYSPARK}"],
        PEERS,
        f"pyspark {PYSPARK}",
    )
    (folder / ".complete").touch()


def _run(command: list[str], folder: Path, what: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CannotInstall(f"{what}: {' '.join(said[-3:]) or f'exit code {done.returncode}'}")

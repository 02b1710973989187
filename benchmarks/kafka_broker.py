"""A Kafka broker of one node on loopback, from jars in a folder of their own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flintmq.spark.java import find_java

from .installing import PEERS, install_jars
from .processes import free_port, server

VERSION = "4.3.1"
JARS = PEERS / "kafka-broker"
HEAP = "1g"

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=4194304
log.segment.delete.delay.ms=0
"""


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    servers: str
    pid: int


def install_broker() -> Path:
    return install_jars(
        JARS, needed=(f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-nop:1.7.36")
    )


def settings_text(port: int, controller: int, data: Path) -> str:
    return _SETTINGS.format(port=port, controller=controller, data=data)


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    java = [str(find_java().executable), f"-Xmx{HEAP}", f"-Xms{HEAP}", "-cp", f"{JARS}/*"]
    port, controller = free_port(), free_port()
    settings = folder / "kafka.properties"
    settings.write_text(settings_text(port, controller, folder / "kafka-data"))
    name = str(uuid.uuid4())
    formatted = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if formatted.returncode:
        raise RuntimeError(f"Kafka could not be set up: {formatted.stderr.strip()[-300:]}")
    command = [*java, "kafka.Kafka", str(settings)]
    with server(command, folder / "kafka.log", port=port) as process:
        yield KafkaBroker(f"127.0.0.1:{port}", process.pid)

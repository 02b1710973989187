"""BlipMQ's files and variables as they are read by `flintmq blipd`."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.config.table import Config
from flintmq.frontends.blip.settings import VARIABLES, resolve_blip
from flintmq.fsync_policy import FsyncPolicy

SECOND = """
bind_addr = "127.0.0.2"
port = 7878
metrics_addr = "127.0.0.3"
metrics_port = 9090
wal_path = "data/blip.wal"
fsync_policy = "every_n:8"
max_retries = 5
retry_backoff_ms = 250
allowed_api_keys = ["dev-key", "other"]
enable_tokio_console = true
"""
SECOND_YAML = """
bind_addr: 127.0.0.2
port: 7878
allowed_api_keys: [dev-key]
fsync_policy: interval_ms:20
"""
FIRST = """
[server]
bind_addr = "127.0.0.1:7878"
max_connections = 256
max_message_size_bytes = 2048
[auth]
api_keys = []
[queues]
topic_capacity = 1000
subscriber_capacity = 512
overflow_policy = "drop_new"
[wal]
directory = "./wal"
segment_size_bytes = 1048576
[metrics]
bind_addr = "127.0.0.1:9090"
[delivery]
max_batch = 64
default_ttl_ms = 0
[performance.cpu_affinity]
enable_affinity = true
"""


def config_of(text: str, directory: Path, name: str = "blipmq.toml", **environment: str) -> Config:
    file = directory / name
    file.write_text(text)
    return resolve_blip(file=file, environment=environment).config()


def test_without_a_word_it_has_its_own_ports_and_nothing_weaker_than_ours() -> None:
    config = resolve_blip().config()

    assert config.blip == ("127.0.0.1", 5555)
    assert config.http == ("127.0.0.1", 9100)
    assert config.data_dir == Path("blipmq.wal.flintmq")
    assert config.fsync == FsyncPolicy("always")
    assert config.topic_defaults["max_deliveries"] == 3
    assert config.blip_retry_backoff == 0.1


def test_a_file_of_the_second_generation(tmp_path: Path) -> None:
    config = config_of(SECOND, tmp_path)

    assert config.blip == ("127.0.0.2", 7878)
    assert config.http == ("127.0.0.3", 9090)
    assert config.data_dir == Path("data/blip.wal.flintmq")
    assert config.fsync == FsyncPolicy("every_n", 8)
    assert config.topic_defaults["max_deliveries"] == 5
    assert config.blip_retry_backoff == 0.25
    assert config.blip_api_keys == ("dev-key", "other")


@pytest.mark.parametrize("name", ["blip.yaml", "blip.yml"])
def test_the_same_as_yaml(tmp_path: Path, name: str) -> None:
    config = config_of(SECOND_YAML, tmp_path, name)

    assert config.blip == ("127.0.0.2", 7878)
    assert config.blip_api_keys == ("dev-key",)
    assert config.fsync == FsyncPolicy("interval", 20)


def test_any_other_extension_is_toml(tmp_path: Path) -> None:
    assert config_of("port = 1234\n", tmp_path, "blip.conf").blip == ("127.0.0.1", 1234)


def test_a_file_of_the_first_generation(tmp_path: Path) -> None:
    config = config_of(FIRST, tmp_path)

    assert config.blip == ("127.0.0.1", 7878)
    assert config.http == ("127.0.0.1", 9090)
    assert config.max_connections == 256
    assert config.blip_max_command_bytes == 2048
    assert config.blip_queue_capacity == 512
    assert config.blip_overflow == "drop_new"
    assert config.data_dir == Path("wal/flintmq")


def test_what_has_no_meaning_here_is_told_and_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "blipmq.toml"
    file.write_text(FIRST + "[new]\nkey = 1\n")

    resolved = resolve_blip(file=file)

    assert resolved.problems == []
    told = " ".join(resolved.doubts)
    assert "queues.topic_capacity" in told
    assert "performance.cpu_affinity.enable_affinity" in told
    assert "new.key is not a BlipMQ setting" in told


def test_keys_of_the_first_generation_are_asked_for_and_that_is_told(tmp_path: Path) -> None:
    file = tmp_path / "blipmq.toml"
    file.write_text('[auth]\napi_keys = ["k"]\n')

    resolved = resolve_blip(file=file)

    assert resolved.config().blip_api_keys == ("k",)
    assert "cannot send a key" in resolved.doubts[0]


VALUES = {
    "BIND_ADDR": "127.0.0.9",
    "PORT": "1",
    "METRICS_ADDR": "127.0.0.8",
    "METRICS_PORT": "2",
    "WAL_PATH": "/x/w",
    "FSYNC_POLICY": " Always ",
    "MAX_RETRIES": "0",
    "RETRY_BACKOFF_MS": "0",
    "ALLOWED_API_KEYS": " a , ,b",
    "ENABLE_TOKIO_CONSOLE": "on",
    "TLS_CERT_PATH": "/c",
    "TLS_KEY_PATH": "/k",
}


@pytest.mark.parametrize("prefix", ["", "BLIPMQ_"])
def test_variables_with_the_prefix_and_without_beat_the_file(tmp_path: Path, prefix: str) -> None:
    assert set(VALUES) == set(VARIABLES)
    environment = {prefix + name: value for name, value in VALUES.items()}

    config = config_of(SECOND, tmp_path, **environment)

    assert config.blip == ("127.0.0.9", 1)
    assert config.http == ("127.0.0.8", 2)
    assert config.data_dir == Path("/x/w.flintmq")
    assert config.fsync == FsyncPolicy("always")
    assert config.topic_defaults["max_deliveries"] == 1
    assert config.blip_retry_backoff == 0.001
    assert config.blip_api_keys == ("a", "b")
    assert (config.tls_cert, config.tls_key) == (Path("/c"), Path("/k"))


def test_a_variable_with_the_prefix_counts_before_one_without(tmp_path: Path) -> None:
    config = resolve_blip(environment={"PORT": "1", "BLIPMQ_PORT": "2"}).config()

    assert config.blip == ("127.0.0.1", 2)


@pytest.mark.parametrize("name", ["CONFIG", "BLIPMQ_CONFIG"])
def test_the_file_may_be_named_by_a_variable(tmp_path: Path, name: str) -> None:
    (tmp_path / "b.toml").write_text("port = 77\n")

    config = resolve_blip(environment={name: str(tmp_path / "b.toml")}).config()

    assert config.blip == ("127.0.0.1", 77)


def test_our_own_words_count_on_top(tmp_path: Path) -> None:
    config = resolve_blip(
        environment={"BLIPMQ_PORT": "1", "FLINTMQ_BLIP": "127.0.0.1:2", "RUST_LOG": "warn"},
        flags={"fsync": "never", "topic_defaults": "ttl=60"},
    ).config()

    assert config.blip == ("127.0.0.1", 2)
    assert config.fsync == FsyncPolicy("never")
    assert config.log_level == "warning"
    assert config.topic_defaults["ttl"] == 60
    assert config.topic_defaults["max_deliveries"] == 3


def test_a_log_level_that_is_more_than_one_word_is_told(tmp_path: Path) -> None:
    resolved = resolve_blip(environment={"RUST_LOG": "blipmq=debug,info"})

    assert "log_level" not in resolved.values
    (doubt,) = resolved.doubts
    assert "RUST_LOG" in doubt


@pytest.mark.parametrize(
    ("policy", "ours"),
    [
        ("always", FsyncPolicy("always")),
        ("none", FsyncPolicy("never")),
        ("every_n:0", FsyncPolicy("always")),
        ("EVERY_N:5", FsyncPolicy("every_n", 5)),
        ("interval_ms:9", FsyncPolicy("interval", 9)),
    ],
)
def test_its_words_for_syncing(policy: str, ours: FsyncPolicy) -> None:
    assert resolve_blip(environment={"BLIPMQ_FSYNC_POLICY": policy}).config().fsync == ours


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PORT", "x"),
        ("MAX_RETRIES", "-1"),
        ("RETRY_BACKOFF_MS", "1.5"),
        ("FSYNC_POLICY", "sometimes"),
        ("CONFIG", "/nowhere/blip.toml"),
    ],
)
def test_what_is_wrong_is_a_fault_with_its_place(name: str, value: str) -> None:
    """BlipMQ ends with exit code 0 and no word, or takes a default."""
    (problem,) = resolve_blip(environment={f"BLIPMQ_{name}": value}).problems

    assert name in problem or value in problem

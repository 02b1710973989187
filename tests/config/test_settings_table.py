"""Every setting: its default, type and bounds, and that its one name works in all four places."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import click
import pytest
from click.testing import CliRunner

from flintmq.cli.root import root
from flintmq.config.kinds import Number, UnfitValue
from flintmq.config.settings import resolve
from flintmq.config.table import BY_NAME, SETTINGS, Config, Setting
from flintmq.fsync_policy import FsyncPolicy

MIB = 2**20


class Case(NamedTuple):
    """What a setting is by default, and another value as text and as it is then."""

    default: Any
    text: str
    value: Any


CASES = {
    "data_dir": Case(Path("flint-data"), "/var/lib/other", Path("/var/lib/other")),
    "listen": Case(("127.0.0.1", 7600), "[::1]:0", ("::1", 0)),
    "http": Case(None, "localhost", ("localhost", 7601)),
    "hermes": Case(None, "localhost", ("localhost", 7600)),
    "hermes_node_id": Case(1, "3", 3),
    "drain_seconds": Case(10.0, "2.5", 2.5),
    "auth": Case("auto", "required", "required"),
    "keys_file": Case(None, "/etc/keys.json", Path("/etc/keys.json")),
    "login_failures_max": Case(10, "3", 3),
    "login_delay": Case(0.5, "250ms", 0.25),
    "tls_cert": Case(None, "/etc/cert.pem", Path("/etc/cert.pem")),
    "tls_key": Case(None, "/etc/key.pem", Path("/etc/key.pem")),
    "tls_client_ca": Case(None, "/etc/ca.pem", Path("/etc/ca.pem")),
    "backup_dir": Case(None, "/var/backups/flint", Path("/var/backups/flint")),
    "hermes_key_file": Case(None, "/etc/hermes.key", Path("/etc/hermes.key")),
    "insecure": Case(False, "yes", True),
    "fsync": Case(FsyncPolicy(), "interval:10", FsyncPolicy("interval", 10)),
    "checkpoint_bytes": Case(32 * MIB, "8MiB", 8 * MIB),
    "journal_file_bytes": Case(64 * MIB, "16MB", 16_000_000),
    "max_queue_bytes": Case(64 * MIB, "1GiB", 2**30),
    "sync_on_loop": Case("auto", "never", "never"),
    "slow_disk_seconds": Case(1.0, "30s", 30.0),
    "scrub_bytes": Case(8 * MIB, "1MiB", MIB),
    "auto_create": Case(True, "off", False),
    "topic_defaults": Case({}, "ttl=1h,overflow=reject", {"ttl": 3600.0, "overflow": "reject"}),
    "staged_seconds": Case(3600.0, "1d", 86_400.0),
    "producer_seconds": Case(7 * 86_400.0, "1d", 86_400.0),
    "max_producer_bytes": Case(64 * MIB, "8MiB", 8 * MIB),
    "max_staged_bytes": Case(None, "4096", 4096),
    "max_staged_writer_bytes": Case(None, "8KiB", 8192),
    "max_decoded_bytes": Case(MIB, "64MiB", 64 * MIB),
    "max_connections": Case(10_000, "7", 7),
    "max_frame_bytes": Case(64 * MIB, "100000", 100_000),
    "max_in_flight_bytes": Case(16 * MIB, "1", 1),
    "max_delivery_bytes": Case(MIB, "64KiB", 65_536),
    "max_unacknowledged_bytes": Case(64 * MIB, "1MiB", MIB),
    "max_requests": Case(12_000, "9", 9),
    "max_streams": Case(10_000, "8", 8),
    "handshake_timeout": Case(10.0, "1", 1.0),
    "idle_timeout": Case(300.0, "1m", 60.0),
    "ping_seconds": Case(120.0, "2", 2.0),
    "grace_seconds": Case(5.0, "0", 0.0),
    "max_away": Case(1000, "0", 0),
    "max_away_bytes": Case(256 * MIB, "0", 0),
    "metrics": Case(True, "false", False),
    "metrics_max_series": Case(10_000, "50", 50),
    "http_max_body_bytes": Case(MIB, "2KiB", 2048),
    "http_timeout": Case(10.0, "0.5", 0.5),
    "http_max_connections": Case(100, "5", 5),
    "http_cpu_share": Case(0.1, "0.25", 0.25),
    "http_max_wait": Case(60.0, "5", 5.0),
    "http_heartbeat_seconds": Case(15.0, "1", 1.0),
    "http_max_stream_seconds": Case(86_400.0, "1h", 3600.0),
    "http_cors_origins": Case((), "https://Shop.example, *", ("https://shop.example", "*")),
    "tiers": Case(
        ("s3://", "gs://", "abfs://", "abfss://", "az://"),
        "s3://ours/, file:///mnt/",
        ("s3://ours/", "file:///mnt/"),
    ),
    "webhook_networks": Case((), "10.0.0.0/8, 127.0.0.1", ("10.0.0.0/8", "127.0.0.1/32")),
    "webhook_ca": Case(None, "/etc/flint/ca.pem", Path("/etc/flint/ca.pem")),
    "http_hosts": Case((), "a.example, B.example", ("a.example", "b.example")),
    "blip": Case(None, "localhost", ("localhost", 5555)),
    "blip_api_keys": Case((), "one, two", ("one", "two")),
    "blip_adopt": Case(True, "false", False),
    "blip_retry_backoff": Case(0.1, "250ms", 0.25),
    "blip_subscription_seconds": Case(3600.0, "1d", 86_400.0),
    "blip_queue_capacity": Case(16_384, "7", 7),
    "blip_overflow": Case("drop_oldest", "block", "block"),
    "blip_max_command_bytes": Case(MIB, "2KiB", 2048),
    "node_name": Case(None, "a", "a"),
    "peer_listen": Case(None, "localhost", ("localhost", 7602)),
    "join": Case((), "a,b:1", ("a:7602", "b:1")),
    "peer_address": Case(None, "a.example:1", ("a.example", 1)),
    "initial_cluster": Case((), "a=h,b=i:1", ("a=h:7602", "b=i:1")),
    "cluster_key_file": Case(None, "/etc/cluster.key", Path("/etc/cluster.key")),
    "peer_ca": Case(None, "/etc/nodes.pem", Path("/etc/nodes.pem")),
    "log_level": Case("info", "debug", "debug"),
    "log_levels": Case({}, "a.b=info,x=error", {"a.b": "info", "x": "error"}),
    "log_format": Case("auto", "json", "json"),
    "profile": Case(None, "/tmp/profile.txt", Path("/tmp/profile.txt")),
}  # fmt: skip
BESIDE = {
    "tls_cert": ["tls_key"],
    "tls_key": ["tls_cert"],
    "tls_client_ca": ["tls_cert", "tls_key"],
    "node_name": ["peer_listen", "cluster_key_file"],
    "peer_listen": ["node_name", "cluster_key_file"],
    "join": ["node_name", "peer_listen", "cluster_key_file"],
    "peer_address": ["node_name", "peer_listen", "cluster_key_file"],
    "initial_cluster": ["node_name", "peer_listen", "cluster_key_file"],
    "cluster_key_file": ["node_name", "peer_listen"],
    "peer_ca": ["node_name", "peer_listen", "tls_cert", "tls_key"],
}
"""What cannot be set alone."""

HINTS = get_type_hints(Config)
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)


def settings_beside(setting: Setting) -> list[Setting]:
    needed = [*BESIDE.get(setting.name, []), "data_dir"]
    return [setting, *(BY_NAME[name] for name in needed if name != setting.name)]


def test_the_table_and_the_configuration_have_the_same_names() -> None:
    names = [setting.name for setting in SETTINGS]

    assert names == list(dict.fromkeys(names))
    assert set(names) == set(CASES) == set(Config.__struct_fields__) - {"sources"}


@every_setting
def test_the_default(setting: Setting) -> None:
    case = CASES[setting.name]

    assert setting.default == case.default
    values = resolve().config()
    assert getattr(values, setting.name) == case.default
    assert type(getattr(values, setting.name)) is type(case.default)
    assert setting.name not in values.sources


@every_setting
def test_a_value_is_read_back_from_how_it_is_shown_and_written(setting: Setting) -> None:
    for value in (CASES[setting.name].value, setting.default):
        if value is None and setting.default_text:
            continue
        assert setting.from_text(setting.kind.to_text(value)) == value
        assert setting.from_value(setting.kind.to_plain(value)) == value
        json.dumps(setting.shown(value))


@every_setting
def test_a_value_has_the_type_the_configuration_says(setting: Setting) -> None:
    value = CASES[setting.name].value
    annotation = str(HINTS[setting.name])

    assert type(setting.from_text(CASES[setting.name].text)) is type(value)
    plain = str(value) if isinstance(value, Path) else setting.kind.to_plain(value)
    assert type(setting.from_value(plain)) is type(value)
    word = {str: "Literal", type(Path()): "Path"}.get(type(value), type(value).__name__)
    assert word in annotation or (word == "Literal" and annotation == "str | None")


@every_setting
def test_bounds_are_allowed_themselves_and_nothing_beyond_them(setting: Setting) -> None:
    kind = setting.kind
    if not isinstance(kind, Number):
        assert not hasattr(kind, "least")
        return
    assert kind.least is not None
    step = 1 if kind.is_whole else 0.0005
    for bound, beyond in ((kind.least, -step), (kind.most, step)):
        if bound is None:
            continue
        whole = int(bound) if kind.is_whole else float(bound)
        assert setting.from_value(whole) == bound
        assert setting.from_text(str(whole)) == bound
        reads: list[tuple[Callable[[Any], Any], Any]] = [
            (setting.from_value, whole + beyond),
            (setting.from_text, str(whole + beyond)),
        ]
        for read, wrong in reads:
            with pytest.raises(UnfitValue) as refused:
                read(wrong)
            assert kind.show(bound) in str(refused.value)


@every_setting
def test_what_makes_no_sense_is_refused_in_words_or_taken_in_earnest(setting: Setting) -> None:
    reads: list[tuple[Callable[[Any], Any], Any]] = [
        *((setting.from_text, text) for text in ("", "nonsense=", "1 2", "-5", "nan", "9" * 400)),
        *((setting.from_value, value) for value in NONSENSE),
    ]
    for read, wrong in reads:
        with suppress(UnfitValue):  # and nothing else
            value = read(wrong)
            assert setting.from_value(setting.kind.to_plain(value)) == value


NONSENSE: list[Any] = [
    None, [], [1], {"a": []}, 1.5, float("nan"), float("inf"), -1, 2**70, 10**400, object, True,
]  # fmt: skip


@every_setting
def test_the_name_in_the_environment(setting: Setting) -> None:
    environment = {
        f"FLINTMQ_{one.name.upper()}": CASES[one.name].text for one in settings_beside(setting)
    }
    config = resolve(environment=environment).config()

    assert getattr(config, setting.name) == CASES[setting.name].value
    assert config.sources[setting.name] == f"FLINTMQ_{setting.name.upper()}"


@every_setting
def test_the_flag(setting: Setting) -> None:
    arguments = ["config", "show", "--output", "json"]
    for one in settings_beside(setting):
        flag = "--" + one.name.replace("_", "-")
        value = CASES[one.name].value
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            arguments += [flag, CASES[one.name].text]
    result = CliRunner().invoke(root, arguments, standalone_mode=False, env={})

    if setting.secret:  # it would be in the process list
        assert isinstance(result.exception, click.NoSuchOption)
        assert CASES[setting.name].text not in str(result.exception)
        return
    shown = json.loads(result.output)[setting.name]
    assert setting.from_value(shown["value"]) == CASES[setting.name].value
    assert shown["source"] == "--" + setting.name.replace("_", "-")


@every_setting
@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_the_key_in_a_file(setting: Setting, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"flintmq.{suffix}"
    equals = " = " if suffix == "toml" else ": "
    file.write_text(
        "".join(f'{one.name}{equals}"{CASES[one.name].text}"\n' for one in settings_beside(setting))
    )
    config = resolve(file=file).config()

    assert getattr(config, setting.name) == CASES[setting.name].value
    assert config.sources[setting.name] == f"{file}:1"


@every_setting
def test_flags_come_before_the_environment_and_that_before_the_file(
    setting: Setting, tmp_path: Path
) -> None:
    file = tmp_path / "flintmq.toml"
    text = CASES[setting.name].text
    file.write_text(
        "".join(f'{one.name} = "{CASES[one.name].text}"\n' for one in settings_beside(setting))
    )
    environment = {setting.variable: text}
    flags: dict[str, str | bool] = {setting.name: text}

    assert resolve(file=file).sources[setting.name] == f"{file}:1"
    by_variable = resolve(file=file, environment=environment)
    assert by_variable.sources[setting.name] == setting.variable
    by_flag = resolve(file=file, environment=environment, flags=flags)
    assert by_flag.sources[setting.name] == setting.flag


def test_a_sentence_of_help_and_words_for_what_is_allowed() -> None:
    for setting in SETTINGS:
        assert setting.help[0].isupper(), setting.name
        assert setting.help.endswith("."), setting.name
        assert setting.kind.allowed, setting.name

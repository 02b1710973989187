"""File, environment and flags together: the later wins, and all that is wrong is told at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.config.docs import sample
from flintmq.config.kinds import Choice, UnfitValue
from flintmq.config.mistakes import why_not
from flintmq.config.settings import ConfigInvalid, resolve
from flintmq.config.table import BY_NAME, SETTINGS, Config, Setting
from flintmq.daemon.reloading import changed

SOURCES = Path(flintmq.__file__).parent


def written(tmp_path: Path, text: str, name: str = "flintmq.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def problems(file: Path) -> list[str]:
    """What is said of a file, without its directory."""
    found = resolve(file=file).all_problems()
    return [problem.removeprefix(f"{file.parent}/") for problem in found]


def test_all_that_is_wrong_is_told_at_once_each_with_its_line_and_what_is_meant(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path,
        """
max_conections = 3
listen = 4
"drain-seconds" = 1
whatsoever = 1

[topic_defaults]
overflow = "perhaps"
retention_agee = 5
max_deliveries = 3
ttl = "1 year"
fsync = "never"
partitions = 4
format = "object"

[log_levels]
flintmq.engine = "loud"
""",
    )
    first, second, third, fourth, *rest = problems(file)

    assert first == "flintmq.toml:2: max_conections is not a setting; did you mean max_connections?"
    assert second == (
        "flintmq.toml:3: listen must be an address HOST:PORT (or HOST, or :PORT), not 4"
    )
    assert third == "flintmq.toml:4: drain-seconds is not a setting; did you mean drain_seconds?"
    assert fourth.startswith("flintmq.toml:5: whatsoever is not a setting; known: data_dir, ")
    assert [line.partition(": ")[0].rpartition(":")[2] for line in rest] == [
        "8", "9", "11", "12", "13", "14", "17",
    ]  # fmt: skip
    texts = "\n".join(rest)
    assert "overflow must be one of drop_oldest, drop_new, block, reject, not 'perhaps'" in texts
    assert "topic_defaults has no 'retention_agee'; did you mean retention_age?" in texts
    assert "fsync is a top-level setting" in texts
    assert "'object' passes references" in texts
    assert "flintmq.engine must be debug, info, warning or error, not 'loud'" in texts


def test_a_fault_in_yaml_has_its_line_too(tmp_path: Path) -> None:
    file = written(tmp_path, "fsync: never\nmetric: on\nlog_levels:\n  a: b\n", "x.yaml")

    assert problems(file) == [
        "x.yaml:2: metric is not a setting; did you mean metrics?",
        "x.yaml:4: log_levels: a must be debug, info, warning or error, not 'b'",
    ]


def test_faults_of_file_environment_and_flags_are_told_together(tmp_path: Path) -> None:
    file = written(tmp_path, "max_away = -1")
    resolved = resolve(
        file=file,
        environment={"FLINTMQ_FSYNC": "perhaps", "FLINTMQ_TLS_KEY": "/key.pem"},
        flags={"max_frame_bytes": "1"},
    )
    with pytest.raises(ConfigInvalid) as refused:
        resolved.config()

    said = refused.value.problems
    assert [problem.partition(": ")[0] for problem in said[:3]] == [
        f"{file}:1", "FLINTMQ_FSYNC", "--max-frame-bytes",
    ]  # fmt: skip
    assert said[3] == "tls_key also needs tls_cert"


def test_a_value_that_another_source_overrules_is_checked_all_the_same(tmp_path: Path) -> None:
    file = written(tmp_path, 'data_dir = "x"\nmax_away = "many"')

    with pytest.raises(ConfigInvalid, match=r"flintmq\.toml:2: max_away"):
        resolve(file=file, flags={"max_away": "3"}).config()


def test_the_file_can_be_named_by_the_environment_and_a_flag_counts_first(tmp_path: Path) -> None:
    named = written(tmp_path, 'data_dir = "/named"')
    given = written(tmp_path, 'data_dir = "/given"', "given.toml")
    environment = {"FLINTMQ_CONFIG": str(named)}

    assert resolve(environment=environment).config().data_dir == Path("/named")
    assert resolve(file=given, environment=environment).config().data_dir == Path("/given")


def test_paths_in_a_file_are_relative_to_it_and_others_to_where_one_is(tmp_path: Path) -> None:
    file = written(tmp_path, 'data_dir = "data"\ntls_cert = "/etc/cert"\ntls_key = "../key"')
    config = resolve(file=file).config()

    assert config.data_dir == tmp_path / "data"
    assert (config.tls_cert, config.tls_key) == (Path("/etc/cert"), tmp_path / "../key")
    assert config.keys_path == tmp_path / "data" / "keys.json"
    assert resolve(flags={"data_dir": "data"}).config().data_dir == Path("data")


def test_what_can_be_off_is_off_by_the_words_of_each_language(tmp_path: Path) -> None:
    for name, text in (
        ("x.toml", 'http = "off"\nprofile = false'),
        ("x.yaml", "http: off\nprofile: ~"),
        ("y.yaml", "http: 'off'\nprofile: 'off'"),
    ):
        resolved = resolve(
            file=written(tmp_path, f"{text}\n", name), environment={"FLINTMQ_AUTH": "off"}
        )
        assert resolved.all_problems() == []
        assert resolved.values == {"http": None, "profile": None, "auth": "off"}
    bare = resolve(file=written(tmp_path, "auth: off\n", "z.yaml"))
    assert bare.values == {"auth": "off"}


def test_a_variable_that_nobody_knows_is_doubted() -> None:
    resolved = resolve(
        environment={
            "FLINTMQ_MAX_CONECTIONS": "5",
            "FLINTMQ_SERVER": "flint://x",
            "FLINTMQ_COLOUR": "red",
            "OTHER_MAX_CONNECTIONS": "x",
        }
    )

    assert resolved.all_problems() == []
    assert resolved.doubts == [
        "FLINTMQ_COLOUR is not a setting and is ignored",
        "FLINTMQ_MAX_CONECTIONS is not a setting and is ignored; "
        "did you mean FLINTMQ_MAX_CONNECTIONS?",
    ]


def test_variables_of_clients_and_of_kubernetes_are_not_doubted() -> None:
    of_clients = [
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r'"(FLINTMQ_[A-Z_]*[A-Z])"', path.read_text())
    ]
    assert {"FLINTMQ_TLS_CLIENT_CERT", "FLINTMQ_API_KEY"} <= set(of_clients)
    of_kubernetes = [
        "FLINTMQ_PORT",
        "FLINTMQ_PORT_7600_TCP",
        "FLINTMQ_PORT_7600_TCP_ADDR",
        "FLINTMQ_SERVICE_HOST",
        "FLINTMQ_SERVICE_PORT",
        "FLINTMQ_SERVICE_PORT_HTTP",
        "FLINTMQ_NODES_SERVICE_HOST",
        "FLINTMQ_NODES_PORT_7600_TCP_PROTO",
    ]
    known = {setting.variable for setting in SETTINGS}

    for name in {*of_clients, *of_kubernetes} - known:
        assert resolve(environment={name: "x.toml"}).doubts == [], name


def test_an_empty_variable_says_nothing() -> None:
    resolved = resolve(environment={"FLINTMQ_MAX_AWAY": "", "FLINTMQ_METRICS": " "})

    assert (resolved.values, resolved.all_problems()) == ({}, [])


def test_certificates_and_keys_belong_together() -> None:
    def said(**flags: str | bool) -> list[str]:
        return resolve(flags=flags).all_problems()

    assert said(tls_cert="a") == ["tls_cert also needs tls_key"]
    assert said(tls_client_ca="a") == ["tls_client_ca also needs tls_cert and tls_key"]
    assert said(tls_cert="a", tls_key="b", tls_client_ca="c") == []


def test_a_secret_is_neither_shown_nor_repeated_in_an_error() -> None:
    row = Setting("word", Choice(("open", "sesame")), "A word.", "Security", secret=True)

    assert row.shown("sesame") == row.shown_text("sesame") == "(secret)"
    assert "hunter2" not in why_not(row, "hunter2", UnfitValue("open or sesame"))


@pytest.mark.parametrize("format", ["toml", "yaml"])
def test_a_file_to_begin_with_has_every_setting_at_its_default(format: str, tmp_path: Path) -> None:
    text = sample(format)
    assert problems(written(tmp_path, text, f"x.{format}")) == []

    # What is explained begins with one blank, what could be set with none, or two in a table.
    uncommented = "\n".join(
        line.removeprefix("#") for line in text.splitlines() if not re.match("# [^ ]", line)
    )
    resolved = resolve(file=written(tmp_path, uncommented, f"all.{format}"))
    assert resolved.problems == []
    assert list(resolved.values) != []
    assert set(resolved.values) == set(BY_NAME)
    for setting in SETTINGS:
        if setting.name not in ("data_dir", "keys_file", "topic_defaults", "log_levels"):
            assert resolved.values[setting.name] == setting.default, setting.name


def test_what_has_changed_is_named() -> None:
    before = Config(data_dir=Path("/x"), max_away=1)
    after = Config(data_dir=Path("/x"), max_away=2, log_level="error", sources={"max_away": "y"})

    assert [setting.name for setting in changed(before, after)] == ["max_away", "log_level"]


def test_parsers_are_loaded_only_for_files() -> None:
    script = (
        "import sys\nfrom flintmq.config.settings import resolve\n"
        "resolve(environment={'FLINTMQ_FSYNC': 'never'})\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert "flintmq.config.files" in done.stdout
    assert not {"yaml", "tomllib", "difflib"} & set(done.stdout.split())

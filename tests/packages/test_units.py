"""The files that start a broker elsewhere: systemd unit, Containerfile, compose file."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from flintmq.daemon.notify import READY, STOPPING, notify

from .conftest import ROOT

PACKAGING = ROOT / "packaging"


def unit() -> dict[str, dict[str, list[str]]]:
    """Sections, names and values; a name may come several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in (PACKAGING / "flintmq.service").read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return sections


def test_the_unit_is_ready_reloads_and_stops_as_the_broker_does() -> None:
    service = unit()["Service"]

    assert service["Type"] == ["notify"]
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert service["KillSignal"] == ["SIGTERM"]
    assert service["Restart"] == ["on-failure"]
    assert int(service["LimitNOFILE"][0]) > 12_000, "connections, backlog and our own files"
    for name in ("DynamicUser", "NoNewPrivileges", "MemoryDenyWriteExecute", "PrivateUsers"):
        assert service[name] == ["yes"], name
    assert service["ProtectSystem"] == ["strict"]
    assert service["CapabilityBoundingSet"] == [""]


@pytest.mark.slow
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT TESTED: systemd-analyze is not installed (apt-get install systemd)")
    # The program it starts is not installed here; any other will do.
    text = (PACKAGING / "flintmq.service").read_text()
    copy = tmp_path / "flintmq.service"
    copy.write_text(text.replace("/opt/flintmq/bin/flintmq", "/bin/true"))

    verified = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert judged.returncode == 0, judged.stdout[-3000:]


def test_the_image_runs_as_nobody_special_and_stops_by_sigterm() -> None:
    lines = [
        line
        for line in (PACKAGING / "Containerfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    by_word: dict[str, list[str]] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        by_word.setdefault(word, []).append(rest)

    assert by_word["USER"] == ["7600:7600"]
    assert by_word["STOPSIGNAL"] == ["SIGTERM"]
    assert by_word["VOLUME"] == ["/var/lib/flintmq"]
    assert by_word["EXPOSE"] == ["7600 7601"]
    assert by_word["ENTRYPOINT"] == ['["flintmq"]']
    let_in = (PACKAGING / "Containerfile.dockerignore").read_text()
    assert let_in == (ROOT / ".containerignore").read_text(), "of docker, and of podman"
    for sources in by_word["COPY"]:
        *names, _ = sources.split()
        if not names[0].startswith("--from"):
            for name in names:
                assert name.startswith("dist/") or (ROOT / name).exists(), name
                assert f"!{name}\n" in let_in, name


def test_the_compose_file_opens_nothing_to_other_machines() -> None:
    composed: dict[str, Any] = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    service = composed["services"]["flintmq"]

    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["user"] == "7600:7600"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["stop_signal"] == "SIGTERM"
    (volume,) = service["volumes"]
    assert volume.split(":") == ["data", "/var/lib/flintmq"]
    assert "data" in composed["volumes"]
    built = (PACKAGING / service["build"]["context"] / service["build"]["dockerfile"]).resolve()
    assert built == (PACKAGING / "Containerfile").resolve()
    assert set(service) <= {
        "image", "build", "user", "ports", "environment", "volumes", "read_only", "tmpfs",
        "cap_drop", "security_opt", "ulimits", "stop_signal", "stop_grace_period", "restart",
    }  # fmt: skip


def test_the_service_manager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify(READY)
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(place))
        assert notify(READY)
        assert notify(STOPPING, "STATUS=bye")
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1\nSTATUS=bye"]
    place.unlink()
    assert not notify(READY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0flintmq-test-{os.getpid()}")
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@flintmq-test-{os.getpid()}")
        assert notify(READY)
        assert manager.recv(100) == b"READY=1"

"""What doctor makes of what it finds."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

import flintmq
from flintmq.config.settings import resolve
from flintmq.daemon.doctor import (
    DoctorFinding,
    Redactor,
    Report,
    look_at_configuration,
    look_at_directory,
    look_at_machine,
    look_at_server,
    write_bundle,
)
from flintmq.daemon.doctor.bundle import without_userinfo
from flintmq.daemon.doctor.data_directory import (
    holder_of,
    judge_filesystem,
    judge_free,
    judge_syncs,
    mounted,
    probe,
)
from flintmq.daemon.doctor.machine import judge_clock, judge_files, judge_memory, versions
from flintmq.daemon.doctor.server import judge_certificate, look_at_certificate
from flintmq.net.tls.certificate import Certificate
from flintmq.storage.filesystem import LocalFileSystem

GIB = 1 << 30
DAY = 86_400.0


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (judge_free(100 * GIB, 500 * GIB, None), "ok"),
        (judge_free(10 * GIB, 500 * GIB, None), "warn"),
        (judge_free(GIB // 2, GIB, None), "warn"),
        (judge_free(1 << 20, 500 * GIB, None), "bad"),
        (judge_free(100 * GIB, 500 * GIB, 10), "warn"),
        (judge_filesystem("ext4", "rw"), "ok"),
        (judge_filesystem("ext4", "rw,nobarrier"), "bad"),
        (judge_filesystem("tmpfs", "rw"), "bad"),
        (judge_filesystem("nfs4", "rw"), "warn"),
        (judge_filesystem("overlay", "rw"), "warn"),
        (judge_filesystem("", ""), "ok"),
        (judge_syncs([0.001] * 20), "ok"),
        (judge_syncs([0.001] * 9 + [0.2] * 11), "warn"),
        (judge_syncs([0.000005] * 20), "warn"),
        (judge_memory(16 * GIB, 8 * GIB, None), "ok"),
        (judge_memory(16 * GIB, 8 * GIB, 100 << 20), "warn"),
        (judge_files(1024, 1 << 20), "ok"),
        (judge_files(1024, 1024), "warn"),
        (judge_certificate(Certificate(1, 0.0, 100 * DAY), DAY), "ok"),
        (judge_certificate(Certificate(1, 0.0, 100 * DAY), 99 * DAY), "warn"),
        (judge_certificate(Certificate(1, 0.0, 100 * DAY), 101 * DAY), "bad"),
        (judge_certificate(Certificate(1, 50 * DAY, 100 * DAY), DAY), "bad"),
        (judge_clock(0.0), "warn"),
        (judge_clock(1.8e9), "ok"),
        (next(iter(list(versions("1", {"uvloop": None}))[1:])), "warn"),
    ],
)
def test_verdicts(finding: DoctorFinding, verdict: str) -> None:
    assert finding.verdict == verdict
    assert bool(finding.remedy) == (verdict != "ok"), "what is not well has a remedy"


def test_the_exit_code_is_that_of_the_worst_finding() -> None:
    fine, doubtful, wrong = (DoctorFinding("x", one, "y") for one in ("ok", "warn", "bad"))
    assert Report([]).exit_code == 0
    assert Report([fine]).exit_code == 0
    assert Report([fine, doubtful]).exit_code == 1
    assert Report([doubtful, wrong, fine]).exit_code == 2


def test_the_filesystem_is_that_of_the_nearest_mount() -> None:
    mounts = (
        "overlay / overlay rw 0 0\n"
        "/dev/a /var ext4 rw,noatime 0 0\n"
        "/dev/b /var/lib/flint\\040mq xfs rw 0 0\n"
    )
    assert mounted("/var/lib/flint mq/data", mounts) == ("xfs", "rw")
    assert mounted("/var/lib/flint", mounts) == ("ext4", "rw,noatime")
    assert mounted("/varnish", mounts) == ("overlay", "rw")


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = probe(tmp_path, 3)

    assert len(taken) == 3
    assert all(seconds > 0 for seconds in taken)
    assert list(tmp_path.iterdir()) == []


def test_who_holds_a_lock_is_read_from_the_kernels_list(tmp_path: Path) -> None:
    locks = (
        "1: FLOCK  ADVISORY  WRITE 4242 08:01:777 0 EOF\n2: POSIX  ADVISORY  READ 1 08:01:5 0 EOF\n"
    )
    assert holder_of(777, locks) == 4242
    assert holder_of(5, locks) is None


async def test_a_directory_is_looked_at_without_a_change_while_a_broker_uses_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with flintmq.connect(f"file://{data}") as mq:
        await mq.publish_batch("orders", [b"x"] * 7)
        before = {path: path.stat().st_mtime_ns for path in data.iterdir() if path.is_file()}
        found = {one.name: one for one in look_at_directory(data)}
        after = {path: path.stat().st_mtime_ns for path in data.iterdir() if path.is_file()}

        assert after == before
        assert found["lock"].facts.get("pid") == os.getpid()
        assert found["data directory"].facts["journal_files"] >= 1
    found = {one.name: one for one in look_at_directory(data)}
    assert found["data directory"].facts["messages"] == 7
    assert found["lock"].facts["held"] is False


def test_torn_tails_and_the_last_start_are_told(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "torn-0000000000000001-4096").write_bytes(b"x" * 10)
    (tmp_path / "recovery.json").write_text('{"topics": 3, "seconds": 0.1}')

    found = {one.name: one for one in look_at_directory(tmp_path)}

    assert found["torn tails"].verdict == "warn"
    assert found["torn tails"].facts == {"count": 1, "bytes": 10}
    assert found["last start"].facts["topics"] == 3


def test_files_of_the_future_tell_of_a_clock_that_was_set_back(tmp_path: Path) -> None:
    LocalFileSystem(tmp_path).create("manifest.copy").close()
    os.utime(tmp_path / "manifest.copy", (4e9, 4e9))

    found = {one.name: one for one in look_at_directory(tmp_path)}

    assert found["clock of the data"].verdict == "warn"


def test_a_directory_that_is_not_there_or_not_ours_is_told(tmp_path: Path) -> None:
    (gone,) = look_at_directory(tmp_path / "gone")
    assert gone.verdict == "bad"
    assert not (tmp_path / "gone").exists()
    first = next(iter(look_at_directory(tmp_path)))
    assert first.verdict == "warn"


def test_a_damaged_manifest_is_bad_news(tmp_path: Path) -> None:
    (tmp_path / "manifest").write_bytes(b"nothing of ours, but long enough to be looked at")
    (tmp_path / "journal").mkdir()

    first = next(iter(look_at_directory(tmp_path)))

    assert first.verdict == "bad"
    assert "log verify" in first.remedy


def test_the_machine_is_described() -> None:
    found = {one.name: one for one in look_at_machine()}

    assert {"versions", "packages", "system", "processors", "clock"} <= set(found)
    assert found["packages"].facts["installed"]["msgspec"]


async def test_a_server_that_is_not_there_is_bad_news() -> None:
    url = "flint://user:secret@127.0.0.1:1"
    finding = await look_at_server(url, lambda: flintmq.connect("flint://127.0.0.1:1", timeout=0.2))

    assert finding.verdict == "bad"
    assert "secret@" not in finding.what.replace("(secret)@", "")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (flintmq.NotAuthenticated("no"), "--api-key-file"),
        (flintmq.TlsFailed("flints://x", "no"), "--tls-ca"),
    ],
)
async def test_a_server_that_does_not_let_us_in_runs_all_the_same(
    error: flintmq.FlintError, remedy: str
) -> None:
    def connect() -> flintmq.Client:
        raise error

    finding = await look_at_server("flint://x", connect)

    assert finding.verdict == "bad"
    assert remedy in finding.remedy


async def test_a_server_that_answers_is_well() -> None:
    finding = await look_at_server("memory://", lambda: flintmq.connect("memory://"))

    assert finding.verdict == "ok"
    assert finding.facts["topics"] == 0


async def test_a_certificate_is_read_from_the_file_and_from_the_server(tmp_path: Path) -> None:
    made = trustme.CA().issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=3))
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    file = tmp_path / "flintmq.toml"
    file.write_text('data_dir = "x"\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n')
    found = {one.name: one for one in look_at_configuration(resolve(file=file))}
    assert found["certificate"].verdict == "warn"

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.configure_cert(context)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        shown = await look_at_certificate(f"flints://127.0.0.1:{port}")
    assert shown.verdict == "warn"
    assert shown.facts["days"] == pytest.approx(3, abs=0.1)


def test_hosts_addresses_and_paths_are_masked_the_same_everywhere() -> None:
    redactor = Redactor(["db7.example.org"])

    text = redactor.text("/var/lib/flint on db7.example.org (10.1.2.3) and /srv/x; see /proc/locks")
    again = redactor.value({"path": "/var/lib/flint", "url": "flint://k:s@db7.example.org:7600"})

    assert text == "<path-1> on <host-1> (<address-1>) and <path-2>; see /proc/locks"
    assert again == {"path": "<path-1>", "url": "flint://(secret)@<host-1>:7600"}
    assert redactor.text("127.0.0.1 or fe80:1:2:3:4:5:6:7") == "127.0.0.1 or <address-2>"


def test_the_secret_of_a_url_is_left_out() -> None:
    assert without_userinfo("at flint://me:key@host:1/x") == "at flint://(secret)@host:1/x"
    assert without_userinfo("a@b.c") == "a@b.c"


def test_a_bundle_is_for_its_owner_alone(tmp_path: Path) -> None:
    report = Report([DoctorFinding("disk", "warn", "little room", "make some")], "now")
    for _ in range(2):
        write_bundle(tmp_path / "b.zip", report, ["a line"])

    assert (tmp_path / "b.zip").stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        assert sorted(bundle.namelist()) == ["log.txt", "report.json", "report.txt"]
        assert json.loads(bundle.read("report.json"))["findings"][0]["verdict"] == "warn"
        assert bundle.read("log.txt") == b"a line\n"

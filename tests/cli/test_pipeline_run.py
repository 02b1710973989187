"""`flintmq pipeline run` up to where Spark begins: which broker, whose key, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.pipeline.run import reaching, running, stopping
from flintmq.pipeline.run.running import Outcome

from .mini_shell import Done, run_line

FILE = """
name = "p"
checkpoint = "state"
[parameters]
topic = "orders"
[sources.orders]
topic = "${topic}"
[sinks.out]
from = "orders"
topic = "out"
"""
SERVERS = 'servers = "flint://of-the-file:1"\n'


class Seen:
    pipeline: Any = None
    keywords: dict[str, Any]


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The command with nothing behind it: what would be run is kept."""
    found = Seen()
    monkeypatch.chdir(tmp_path)
    for name in ("FLINTMQ_SERVER", "FLINTMQ_API_KEY", "FLINTMQ_API_KEY_FILE", "FLINTMQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLINTMQ_CONTEXTS", str(tmp_path / "contexts.json"))
    (tmp_path / "key").write_text("flint_1_secret\n")
    (tmp_path / "p.toml").write_text(FILE)

    def run(pipeline: Any, **keywords: Any) -> Outcome:
        found.pipeline, found.keywords = pipeline, keywords
        return Outcome(pipeline="p", ended=found.keywords["spark"], seconds=1.0, flows={})

    def session(stop: Any, tell: Callable[[str], None], **wanted: Any) -> Any:
        tell(f"{wanted['config']} {wanted['log_file'].relative_to(tmp_path)}")
        return "done"

    monkeypatch.setattr(reaching, "reach", lambda pipeline, access: None)
    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(stopping, "session_unless_stopped", session)
    return found


def typed(line: str) -> Done:
    return run_line(f"flintmq pipeline run p.toml {line}")


def test_flags_become_what_is_run(seen: Seen) -> None:
    done = typed("--once --for 2m --from-scratch --checkpoint other --set topic=sales")

    assert done.code == 0, done.err
    assert seen.pipeline.sources["orders"].topics == ("sales",)
    assert seen.pipeline.checkpoint == "other"
    assert {name: seen.keywords[name] for name in ("once", "seconds", "from_scratch")} == {
        "once": True, "seconds": 120.0, "from_scratch": True,
    }  # fmt: skip
    assert "starting Spark (local[*]) ..." in done.err
    assert "{'spark.sql.session.timeZone': 'UTC'} other/spark.log" in done.err


def test_the_broker_is_the_one_of_the_flag_then_of_the_file_then_the_usual_one(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_line("flintmq context add prod --server flint://of-the-context:1 --api-key-file key")

    typed("")
    assert seen.pipeline.servers == "flint://of-the-context:1"
    assert seen.keywords["access"] == {"apiKey": "flint_1_secret"}

    (tmp_path / "p.toml").write_text(SERVERS + FILE)
    monkeypatch.setenv("FLINTMQ_SERVER", "flint://of-the-environment:1")
    typed("")
    assert seen.pipeline.servers == "flint://of-the-file:1"
    assert seen.keywords["access"] == {}, "a key for one broker is for no other"

    typed("--server flint://of-the-flag:1 --api-key-file key --tls-ca ca.pem")
    assert seen.pipeline.servers == "flint://of-the-flag:1"
    assert seen.keywords["access"] == {"apiKey": "flint_1_secret", "tlsCa": "ca.pem"}

    typed("--context prod")
    assert seen.keywords["access"] == {"apiKey": "flint_1_secret"}

    monkeypatch.setenv("FLINTMQ_API_KEY", "flint_2_other")
    typed("")
    assert seen.keywords["access"] == {"apiKey": "flint_2_other"}


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("--set topic", 2, "flintmq: --set takes NAME=VALUE, not 'topic'"),
        ("--for long", 2, "'long' is not a duration"),
        ("--set nothing=1", 1, "p.toml: --set nothing: unknown parameter nothing"),
        ("--api-key-file missing", 1, "flintmq: cannot read the API key in missing"),
    ],
)
def test_misuse_is_one_line(seen: Seen, line: str, code: int, told: str) -> None:
    done = typed(line)

    assert done.code == code
    assert told in done.err
    assert done.err.count("\n") == 1


def test_all_pipelines_of_a_directory_run_in_one_spark(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        def newSession(self) -> str:
            return "done"

    ran: list[str] = []

    def run(pipeline: Any, **keywords: Any) -> Outcome:
        ran.append(pipeline.name)
        return Outcome(pipeline=pipeline.name, ended=keywords["spark"], seconds=1.0, flows={})

    monkeypatch.setattr(stopping, "session_unless_stopped", lambda *_, **__: Session())
    monkeypatch.setattr(running, "run", run)
    (tmp_path / "q.toml").write_text(FILE.replace('"p"', '"q"').replace("state", "other"))
    (tmp_path / "flintmq.toml").write_text('listen = "127.0.0.1:1"\n')

    done = run_line("flintmq pipeline run --all . --set topic=x --metrics 127.0.0.1:0")
    assert done.code == 0, done.err
    assert sorted(ran) == ["p", "q"]
    assert "metrics: http://127.0.0.1:" in done.err

    (tmp_path / "r.toml").write_text(FILE)
    assert "have the same name, 'p'" in run_line("flintmq pipeline run --all .").err
    for line in ("run", "run p.toml --all .", "run --all . --checkpoint x"):
        assert run_line(f"flintmq pipeline {line}").code == 2
    assert run_line("flintmq pipeline run p.toml --restart x").code != 0


def test_one_run_that_was_stopped_in_the_middle_ends_as_ctrl_c_does(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "session_unless_stopped", lambda *_, **__: "stopped")

    assert typed("--once").code == 130
    assert typed("").code == 0


def test_a_broker_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text(FILE)

    done = typed("--server flint://127.0.0.1:1")

    assert done.code == 3
    assert done.err.startswith("flintmq: no connection to flint://127.0.0.1:1: Connection refused")

"""The configuration: its errors and its values, without secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ...config.settings import Resolved
from ...config.table import SETTINGS
from ...net.tls.certificate import Certificate
from .findings import DoctorFinding, bad, ok, warn
from .server import judge_certificate


def look_at_configuration(resolved: Resolved) -> Iterator[DoctorFinding]:
    problems = resolved.all_problems()
    values = resolved.all_values()
    shown = {
        setting.name: setting.shown(values[setting.name])
        for setting in SETTINGS
        if setting.name in resolved.sources and setting.name in values
    }
    facts = {"settings": shown, "sources": dict(resolved.sources)}
    if problems:
        yield bad(
            "configuration",
            "; ".join(problems),
            "`flintmq config check` lists these errors, `flintmq config show` the settings "
            "in effect",
            **facts,
        )
    else:
        said = ", ".join(f"{name}={value}" for name, value in shown.items())
        yield ok("configuration", said or "only defaults", **facts)
    if "tls_cert" in resolved.values:
        yield _certificate(resolved.values["tls_cert"])
    for doubt in resolved.doubts:
        yield warn("environment", doubt, "correct the name, or unset the variable")


def _certificate(path: Path) -> DoctorFinding:
    try:
        return judge_certificate(Certificate.of_pem(path.read_text()), time.time())
    except (OSError, ValueError) as error:
        return bad(
            "certificate",
            f"cannot read {path}: {error}",
            "check that it is a PEM certificate, and that the broker's user may read it",
        )

"""Collects what a bug report needs: findings with a verdict and, if useful, a remedy.

Only reads, except for a short disk probe in a temporary file. Works while a broker runs. Findings
never contain secrets.
"""

from __future__ import annotations

from .bundle import Redactor, write_bundle
from .configuration import look_at_configuration
from .data_directory import look_at_directory
from .findings import DoctorFinding, Report, Verdict
from .machine import look_at_machine
from .server import look_at_certificate, look_at_server

__all__ = [
    "DoctorFinding",
    "Redactor",
    "Report",
    "Verdict",
    "look_at_certificate",
    "look_at_configuration",
    "look_at_directory",
    "look_at_machine",
    "look_at_server",
    "write_bundle",
]

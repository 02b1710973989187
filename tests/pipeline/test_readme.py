"""The pipeline of the README runs on the README's own data, and shows a result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import serving

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_pipeline_of_the_readme_shows_a_result(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (typed,) = [block for block in blocks if "pipeline run" in block]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = [os.fspath(Path(sys.executable).parent), os.environ["PATH"]]
    with serving(tmp_path / "data") as url:
        done = subprocess.run(
            ["sh", "-e", "-c", typed],
            cwd=tmp_path,
            env={**os.environ, "FLINTMQ_SERVER": url, "PATH": os.pathsep.join(commands)},
            capture_output=True,
            text=True,
            timeout=280,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    totals = [json.loads(line) for line in done.stdout.splitlines() if '"region"' in line]
    found = sorted((row["region"], row["orders"], row["amount"]) for row in totals)
    assert found == [("eu", 2, 300.0), ("us", 1, 80.0)], done.stdout

"""Does what docs/pipelines/first-table.md says, as a new user would, and puts the answers in.

    python -m tests.pipeline.an_hour        writes the page with the answers of today

The page is the script: in console blocks, lines that begin with `$ ` are typed; a toml block whose
first line is `# NAME.toml` is saved; a py block is run, and the text block behind it is its answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.serving import serving

PAGE = Path(__file__).parents[2] / "docs" / "pipelines" / "first-table.md"
BLOCK = re.compile(r"```(console|toml|py|text)\n(.*?)```", re.DOTALL)
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MASKS = [
    (r"\([\d.]+ s\)", "(TIME)"),
    (r'"seconds":\s?[\d.]+', '"seconds": TIME'),
    (r"in [\d.]+ s(, [\d,]+/s)?", "in TIME"),
    (r"-{3,}", "---"),
    (r" +", " "),
]


def typed(page: str) -> str:
    """The page with the answers of today."""
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-hour-") as temporary,
        serving(Path(temporary) / "data") as url,
    ):
        place = Path(temporary) / "here"
        place.mkdir()
        return _Typist(place, url).page(page)


class _Typist:
    def __init__(self, place: Path, url: str) -> None:
        self._place, self._url, self._said = place, url, ""
        beside = Path(sys.executable).parent
        self._environment = {
            **{name: v for name, v in os.environ.items() if not name.startswith("FLINTMQ_")},
            "FLINTMQ_SERVER": url,
            "FLINTMQ_CONTEXTS": f"{place}/contexts.json",
            "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}",
            "SPARK_SUBMIT_OPTS": LIGHT_JAVA,
            "COLUMNS": "100",
        }

    def page(self, text: str) -> str:
        return BLOCK.sub(self._block, text)

    def _block(self, found: re.Match[str]) -> str:
        kind, text = found[1], found[2]
        if kind == "console":
            lines = [line for line in text.splitlines() if line.startswith("$ ")]
            text = "".join(f"{line}\n{self._run(['bash', '-c', line[2:]])}" for line in lines)
        elif kind == "toml":
            name = re.match(r"# (\w+\.toml)\n", text)
            assert name is not None, "the first line says which file it is"
            (self._place / name[1]).write_text(text)
        elif kind == "py":
            self._said = self._run([sys.executable, "-c", text])
        else:
            text = self._said
        return f"```{kind}\n{text}```"

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        said = done.stdout + ("" if done.returncode == 0 else done.stderr)
        said = said.replace(self._url, "flint://127.0.0.1:7600").replace(str(self._place), ".")
        if said and not said.endswith("\n"):
            said += "\n"
        return said + (f"(exit code {done.returncode})\n" if done.returncode else "")


def masked(page: str) -> str:
    """The page without what differs from run to run."""
    for pattern, text in MASKS:
        page = re.sub(pattern, text, page)
    return page


if __name__ == "__main__":
    PAGE.write_text(typed(PAGE.read_text()))
    print(f"{PAGE.name} has the answers of today")

"""Types the commands of docs/cluster-session.md on real nodes, and puts the answers in.

What lies between the commands is in comments of the page: `<!-- do: kill c -->`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path

from tests.cluster.processes import NodeProcess, founded, leader_of, of, seen_by, votes
from tests.cluster.upgrading import installed, restarted
from tests.patience import until

PARTS = re.compile(r"<!-- do: (.+?) -->|```console\n(.*?)```", re.DOTALL)
PORTS = {"a": 7600, "b": 7610, "c": 7620}


class ClusterSession:
    def __init__(self, nodes: dict[str, NodeProcess]) -> None:
        self._nodes = nodes

    @property
    def _url(self) -> str:
        return "flint://" + ",".join(f"127.0.0.1:{node.clients}" for node in self._nodes.values())

    async def typed(self, page: str) -> str:
        """The page with the answers of today."""
        made, at = "", 0
        for part in PARTS.finditer(page):
            made += page[at : part.start()]
            if part[1] is not None:
                await self._do(*part[1].split())
                made += part[0]
            else:
                lines = [line for line in part[2].splitlines() if line.startswith("$ ")]
                made += "```console\n"
                for line in lines:
                    made += f"{line}\n{await self._answer(line[2:])}"
                made += "```"
            at = part.end()
        return made + page[at:]

    async def _do(self, verb: str, name: str = "") -> None:
        nodes = self._nodes
        if verb == "lead":
            await self._answer(f"flintmq cluster transfer {name}")
            await until(lambda: self._leads(name), f"{name} leads")
            for other in nodes:
                await votes(nodes, other)
        elif verb == "kill":
            await nodes[name].kill()
            await until(lambda: self._is_down(name), f"{name} is down")
        elif verb == "join":
            shutil.rmtree(nodes[name].directory)
            await nodes[name].start("--join", nodes["a"].peer)
            await nodes[name].ready()
            await votes(nodes, name)
            await until(self._is_alone_of_its_name, f"the {name} of before is gone")
        elif verb == "upgrade":
            for one in ("b", "c", "a"):
                await restarted(nodes[one], None)
                for other in nodes:
                    await votes(nodes, other)
        else:
            raise AssertionError(verb)
        for node in nodes.values():
            await until(partial(self._is_led, node), "all nodes know who leads")

    async def _is_led(self, node: NodeProcess) -> bool:
        if node.process is None or node.process.returncode is not None:
            return True
        status = await seen_by(node)
        return status is not None and bool(status.leader)

    async def _leads(self, name: str) -> bool:
        return (await leader_of(self._nodes)).name == name

    async def _is_down(self, name: str) -> bool:
        status = await seen_by(await leader_of(self._nodes))
        node = None if status is None else of(status, name)
        return node is not None and node.role == "down"

    async def _is_alone_of_its_name(self) -> bool:
        status = await seen_by(await leader_of(self._nodes))
        return status is not None and len(status.nodes) == len(self._nodes)

    async def _answer(self, line: str) -> str:
        words = shlex.split(line)
        assert words[0] == "flintmq"
        for name, node in self._nodes.items():  # the page has the usual ports
            words = [word.replace(f"127.0.0.1:{PORTS[name] + 2}", node.peer) for word in words]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", *words[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "FLINTMQ_SERVER": self._url, "COLUMNS": "100"},
        )
        out, _ = await process.communicate()
        text = out.decode()
        for name, node in self._nodes.items():
            text = _renamed(text, f"127.0.0.1:{node.clients}", f"127.0.0.1:{PORTS[name]}")
            text = _renamed(text, node.peer, f"127.0.0.1:{PORTS[name] + 2}")
        return text + (f"(exit code {process.returncode})\n" if process.returncode else "")


def _renamed(text: str, address: str, usual: str) -> str:
    """Columns stay where they are."""
    text = re.sub(re.escape(address) + "(?=  )", usual.ljust(len(address)), text)
    return text.replace(address, usual)


def without_figures(page: str) -> str:
    """The page without what differs from run to run: counts, times, ids, order of nodes."""
    page = re.sub(r"Cluster [0-9a-f]{8}", "Cluster ID", page)
    page = re.sub(r"in [\d.]+ s(, [\d,]+/s)?", "in TIME", page)
    page = re.sub(r"((?:leader|follower)\s+)[\d,]+(\s+)[\d,]+(\s+)[\d,]+(\s+)[\d,]+", r"\1", page)
    # How a line to a killed node ended is a matter of chance.
    page = re.sub(r"is down: [^\n]*|down: [^\n]*", "down: WHY", page)
    page = re.sub(r"no connection[^\n]*|Connection refused[^\n]*|the connection[^\n]*", "WHY", page)
    page = re.sub(r"[ \t]+", " ", page)
    # Ids, and so the order of the rows, follow the ports.
    return re.sub(
        r"(?:^[abc] 127\.[^\n]*\n)+",
        lambda rows: "".join(sorted(rows[0].splitlines(keepends=True))),
        page,
        flags=re.MULTILINE,
    )


async def typed_on(directory: Path, page: str) -> str:
    """Nodes are of the earlier version, until they are upgraded."""
    old = {"PYTHONPATH": str(installed(directory))}
    async with founded(directory / "nodes", "a", "b", "c", environment=old) as nodes:
        return await ClusterSession(nodes).typed(page)

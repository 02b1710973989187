"""Copies are compared: a node whose state differs from that of most gets it anew.

Who leads proposes a `CheckState` now and then. At its place in the log every node works out what
its state comes to (`engine/state/digests.py`), a little in each turn, and tells all others. So each
node sees by itself whether it differs:

    all agree              nothing is done
    most agree, we do not  this node leaves the lead to others, and asks who leads for a checkpoint:
                           that takes the place of what is applied here (`installing.py`); its log,
                           which is right, stays, so it votes and stores what is published meanwhile
    no majority agrees     an alarm, and nothing else: nobody knows who is right

A number that did not arrive is not missed: there is another check a minute later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from struct import Struct
from typing import Protocol

from ..engine.commands import CheckState
from ..engine.shard import Shard
from ..engine.state.digests import FORM
from ..errors import FlintError, MalformedFrame
from ..observe.logs import event
from .peer_frames import FrameKind
from .replicated_log import ReplicatedLog
from .shipping import SendShipping

_log = logging.getLogger(__name__)

CHECK_TICKS = 600
"""Between two checks: a minute."""
ASK_TICKS = 20
"""Between two requests for a checkpoint."""
STEPS = 32
"""So many topics are looked at in one turn of the event loop: about a millisecond."""
NEEDS_LEVEL = 3
"""Of commands, for the cluster to be checked at all."""
KEPT_MAX = 8
"""Of so many checks it is remembered who said what."""

_DIGEST = Struct("<IB3xQQ")


class CheckedNode(Protocol):
    """A node, as far as this needs it."""

    id: int

    def is_leading(self) -> bool: ...
    def leader(self) -> int: ...
    def voters(self) -> AbstractSet[int]: ...
    def peers(self) -> Collection[int]: ...


class StateChecks:
    """`ask(leader)` has a checkpoint sent that takes the place of what is applied here."""

    def __init__(
        self,
        node: CheckedNode,
        shard: Shard,
        log: ReplicatedLog,
        send: SendShipping,
        ask: Callable[[int], object],
        *,
        check_ticks: int = CHECK_TICKS,
    ) -> None:
        self._node, self._shard, self._log = node, shard, log
        self._send, self._ask = send, ask
        self._check_ticks, self._ticks = check_ticks, 0
        self._reports: dict[int, dict[int, int]] = {}
        """By the number of a check: what the states of nodes came to."""
        self._is_stepping = False
        self._last_number = 0
        self._alarmed = 0
        self.differs = False
        """Whether what is applied here is not what most have."""
        self.checked = self.found = self.rebuilt = 0
        """How often the state was worked out, was another one, and was put right."""
        state = shard.state
        state.on_check, state.digests.on_done = self._step_soon, self._done

    # --- time

    def tick(self) -> None:
        self._ticks += 1
        if self._node.is_leading():
            if self._ticks % self._check_ticks == 0 and self._log.level_max >= NEEDS_LEVEL:
                self.propose()
        elif self.differs and self._ticks % ASK_TICKS == 0 and (leader := self._node.leader()):
            self._ask(leader)

    def propose(self) -> None:
        """Have all nodes check what they have."""
        number = max(self._log.term << 24, self._last_number + 1)
        self._last_number = number
        try:
            done = self._shard.proposer.change(CheckState(number))
        except FlintError:
            return  # nobody can say how it ends: the next one is as good
        if done is not None:
            done.add_done_callback(lambda future: future.cancelled() or future.exception())

    # --- working it out

    def _step_soon(self) -> None:
        if not self._is_stepping:
            self._is_stepping = True
            asyncio.get_running_loop().call_soon(self._steps)

    def _steps(self) -> None:
        self._is_stepping = False
        digests = self._shard.state.digests
        for _ in range(STEPS):
            digests.step()
        if digests.is_working:
            self._step_soon()

    def _done(self, number: int, digest: int) -> None:
        self.checked += 1
        body = _DIGEST.pack(0, FORM, number, digest)
        for peer in self._node.peers():
            self._send(peer, FrameKind.DIGEST, body)
        self._heard(self._node.id, number, digest)

    # --- comparing

    def receive(self, peer: int, body: memoryview) -> None:
        """What the state of another node came to. Raises MalformedFrame."""
        if len(body) < _DIGEST.size:
            raise MalformedFrame(f"{len(body)} bytes about the state of a node")
        group, form, number, digest = _DIGEST.unpack_from(body)
        if group == 0 and form == FORM:
            self._heard(peer, number, digest)

    def _heard(self, node: int, number: int, digest: int) -> None:
        if number not in self._reports and len(self._reports) >= KEPT_MAX:
            oldest = min(self._reports)
            if number < oldest:
                return
            del self._reports[oldest]
        self._reports.setdefault(number, {})[node] = digest
        self._judge(number, self._reports[number])

    def _judge(self, number: int, said: dict[int, int]) -> None:
        own, voters = said.get(self._node.id), self._node.voters()
        votes = Counter(digest for node, digest in said.items() if node in voters)
        if own is None or not votes:
            return
        digest, count = votes.most_common(1)[0]
        if 2 * count > len(voters):
            if digest != own and not self.differs:
                self._differ(number)
        elif len(votes) > 1 and voters <= said.keys() and self._alarmed != number:
            self._alarmed = number
            event(
                _log,
                logging.ERROR,
                "cluster_states_differ",
                "the data of the nodes differs, and no majority agrees on a copy; back up each "
                "node, and compare the backups",
                number=number,
            )

    def _differ(self, number: int) -> None:
        self.differs = True
        self.found += 1
        event(
            _log,
            logging.ERROR,
            "cluster_state_differs",
            "the data of this node differs from that of the majority: it steps down and fetches a "
            "copy; check the memory and the disk of this machine",
            node=self._node.id,
            number=number,
            index=self._shard.proposer.applied,
        )

    def was_rebuilt(self) -> None:
        """What is applied here has come from another node."""
        self._reports.clear()
        if self.differs:
            self.differs = False
            self.rebuilt += 1
            event(
                _log,
                logging.WARNING,
                "cluster_state_rebuilt",
                "the data of this node was replaced by a copy from the leader",
                node=self._node.id,
                index=self._shard.proposer.applied,
            )

"""How blank nodes become one cluster, in every order of messages, restarts and lost disks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.cluster.founding import (
    Adopt,
    Agreed,
    Bootstrap,
    Confirm,
    Decider,
    Found,
    FoundingNode,
    FoundingRequest,
    Refused,
    decode_answer,
    decode_request,
    encode_founding,
)
from flintmq.cluster.identity import Members, NodeStanding, id_of, members_of

MEMBERS = members_of([("a", "10.0.0.1:1"), ("b", "10.0.0.2:1"), ("c", "10.0.0.3:1")])
OTHERS = members_of([("b", "10.0.0.2:1"), ("c", "10.0.0.3:1"), ("d", "10.0.0.4:1")])


def found_all(members: Members = MEMBERS) -> dict[str, FoundingNode]:
    """All goes well."""
    nodes = {member.name: FoundingNode(member.name) for member in members}
    decider = Decider(nodes[members[0].name], members)
    while (wanted := decider.next_request()) is not None:
        to, request = wanted
        assert decider.answered(nodes[members[to - 1].name].answer(request))
    for member in members[1:]:
        assert nodes[member.name].answer(nodes[members[0].name].found()) == Agreed(
            nodes[member.name].incarnation
        )
    return nodes


def test_blank_nodes_found_one_cluster() -> None:
    nodes = found_all()

    records = [node.record for node in nodes.values()]
    assert all(record is not None for record in records)
    assert len({record.cluster for record in records if record}) == 1
    assert [record.node for record in records if record] == [1, 2, 3]
    assert {record.incarnations for record in records if record} == {
        tuple(node.incarnation for node in nodes.values())
    }


def test_the_members_are_in_the_order_of_their_addresses_whatever_the_order_given() -> None:
    assert members_of([("x", "h:2"), ("y", "h:1")]) == members_of([("y", "h:1"), ("x", "h:2")])


def test_a_founder_takes_no_other_cluster() -> None:
    node = found_all()["b"]
    before = node.record
    assert before is not None
    for request in (
        Bootstrap(OTHERS),
        Adopt(b"x" * 16, MEMBERS, 7),
        Confirm(before.cluster, before.asker, before.incarnation),
        Found(b"x" * 16, MEMBERS, before.incarnations, 1),
    ):
        assert isinstance(node.answer(request), Refused)
    assert node.record == before


def test_a_directory_with_data_is_never_adopted() -> None:
    node = FoundingNode("a", has_data=True)
    for request in (Bootstrap(MEMBERS), Adopt(b"x" * 16, MEMBERS, 7)):
        answer = node.answer(request)
        assert isinstance(answer, Refused)
        assert "ran alone" in answer.why
    assert node.record is None


def test_lists_that_differ_are_refused() -> None:
    node = FoundingNode("b")
    node.answer(Bootstrap(MEMBERS))
    answer = node.answer(Adopt(b"x" * 16, OTHERS, 7))
    assert isinstance(answer, Refused)
    assert "the same --initial-cluster" in answer.why


def test_a_wiped_founder_is_not_a_founder_again() -> None:
    nodes = found_all()
    wiped = FoundingNode("c")
    assert isinstance(wiped.answer(nodes["a"].found()), Refused)
    wiped.answer(Adopt(b"x" * 16, MEMBERS, 7))
    assert isinstance(wiped.answer(nodes["b"].found()), Refused)


def test_what_was_confirmed_is_not_given_to_another_founder() -> None:
    node = FoundingNode("b")
    node.answer(Adopt(b"x" * 16, MEMBERS, 7))
    assert isinstance(node.answer(Confirm(b"x" * 16, 7, node.incarnation)), Agreed)
    other = Found(b"y" * 16, MEMBERS, (5, node.incarnation, 6), 3)
    assert isinstance(node.answer(other), Refused)


def test_requests_and_answers_travel_as_bytes() -> None:
    for request in (
        Bootstrap(MEMBERS),
        Adopt(b"x" * 16, MEMBERS, 7),
        Confirm(b"x" * 16, 7, 8),
        Found(b"x" * 16, MEMBERS, (1, 2, 3), 1),
    ):
        assert decode_request(encode_founding(request)) == request
    for answer in (Agreed(3), Refused("no", True)):
        assert decode_answer(encode_founding(answer)) == answer


# --- every order


@dataclass
class FoundingWorld:
    """Nodes, deciders that ask, and messages that may arrive late, twice or never."""

    nodes: dict[str, FoundingNode]
    lists: list[Members]
    wipes: int
    restarts: int
    deciders: dict[str, Decider] = field(default_factory=dict)
    net: list[tuple[str, FoundingRequest]] = field(default_factory=list)
    ever: dict[bytes, set[str]] = field(default_factory=dict)

    def moves(self) -> list[tuple[str, object]]:
        out: list[tuple[str, object]] = []
        for members in self.lists:
            name = members[0].name
            node = self.nodes[name]
            if name not in self.deciders and not node.is_founder():
                known = node.record.members if node.record is not None else members
                if known == members:
                    out.append(("decide", members))
        for name in self.deciders:
            out += [("ask", name), ("send", name)]
        out += [("deliver", at) for at in range(len(self.net))]
        for name, node in self.nodes.items():
            if node.is_founder():
                out.append(("found", name))
            if self.restarts:
                out.append(("restart", name))
            if self.wipes:
                out.append(("wipe", name))
        return out

    def do(self, move: tuple[str, object], answer_is_lost: bool) -> None:
        match move:
            case ("decide", members):
                assert isinstance(members, tuple)
                name = members[0].name
                self.deciders[name] = Decider(self.nodes[name], members)
            case ("ask", str(name)):
                self._ask(name, answer_is_lost)
            case ("send", str(name)):
                decider = self.deciders[name]
                wanted = decider.next_request()
                assert wanted is not None
                self._put(decider.members[wanted[0] - 1].name, wanted[1])
            case ("deliver", int(at)):
                to, request = self.net[at]
                self.nodes[to].answer(request)
            case ("found", str(name)):
                found = self.nodes[name].found()
                for member in found.members:
                    self._put(member.name, found)
            case ("restart", str(name)):
                self.restarts -= 1
                self.deciders.pop(name, None)
                self.nodes[name] = FoundingNode(name, self.nodes[name].record)
            case ("wipe", str(name)):
                self.wipes -= 1
                self.deciders.pop(name, None)
                self.nodes[name] = FoundingNode(name)
        self.check()

    def _put(self, to: str, request: FoundingRequest) -> None:
        if (to, request) not in self.net:
            self.net.append((to, request))

    def _ask(self, name: str, answer_is_lost: bool) -> None:
        decider = self.deciders[name]
        wanted = decider.next_request()
        assert wanted is not None
        to, request = wanted
        member = decider.members[to - 1].name
        self._put(member, request)
        answer = self.nodes[member].answer(request)
        if answer_is_lost:
            return
        if not decider.answered(answer) or decider.is_done:
            del self.deciders[name]

    def check(self) -> None:
        """No node is a founder of two clusters, and founders of one agree on who they are."""
        for name, node in self.nodes.items():
            if node.is_founder():
                assert node.record is not None
                assert node.record.incarnations[node.record.node - 1] == node.incarnation
                self.ever.setdefault(node.record.cluster, set()).update(
                    member.name for member in node.record.members
                )
                assert id_of(name, node.record.members)
        clusters = list(self.ever.values())
        for at, one in enumerate(clusters):
            for other in clusters[at + 1 :]:
                assert not one & other, "two clusters with a common founder"
        pins = {
            (node.record.cluster, node.record.incarnations)
            for node in self.nodes.values()
            if node.record is not None and node.is_founder()
        }
        assert len(pins) == len({cluster for cluster, _ in pins})

    def settle(self) -> None:
        """No more faults: everybody does what it has to."""
        for _ in range(20):
            for members in self.lists:
                name = members[0].name
                if not self.nodes[name].is_founder():
                    decider = self.deciders.pop(name, None) or Decider(self.nodes[name], members)
                    self.deciders[name] = decider
                    while name in self.deciders:
                        self._ask(name, answer_is_lost=False)
                        self.check()
            for node in list(self.nodes.values()):
                if node.is_founder():
                    found = node.found()
                    for member in found.members:
                        self.nodes[member.name].answer(found)
                        self.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "lists", "wipes", "restarts"),
    [
        ("abc", [MEMBERS], 0, 3),
        ("abc", [MEMBERS], 1, 2),
        ("abcd", [MEMBERS, OTHERS], 0, 1),
    ],
)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_happens_there_is_one_cluster_and_it_comes_to_be(
    names: str, lists: list[Members], wipes: int, restarts: int, data: st.DataObject
) -> None:
    world = FoundingWorld({name: FoundingNode(name) for name in names}, lists, wipes, restarts)
    for _ in range(data.draw(st.integers(0, 40), "steps")):
        moves = world.moves()
        if not moves:
            break
        at = data.draw(st.integers(0, len(moves) - 1), "move")
        world.do(moves[at], data.draw(st.booleans(), "lost"))
    if len(lists) == 1:
        world.settle()
        founders = [node for node in world.nodes.values() if node.is_founder()]
        assert len(founders) >= 3 - wipes
        assert len({node.record.cluster for node in founders if node.record}) == 1


def test_one_decider_after_another_is_heard_and_the_dead_one_is_not() -> None:
    node = FoundingNode("b")
    first, second = Adopt(b"x" * 16, MEMBERS, 7), Adopt(b"y" * 16, MEMBERS, 8)
    assert isinstance(node.answer(first), Agreed)
    assert isinstance(node.answer(second), Agreed)
    assert isinstance(node.answer(first), Refused)
    assert node.record is not None
    assert (node.record.cluster, node.record.standing) == (b"y" * 16, NodeStanding.ADOPTED)

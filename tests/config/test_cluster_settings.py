"""Settings of a cluster that are valid one by one, and wrong together, say what to do."""

from __future__ import annotations

import pytest

from flintmq.config.kinds import NodeAddresses, NodeName, UnfitValue
from flintmq.config.settings import resolve
from flintmq.config.table import Config
from flintmq.daemon.exposure import Exposed, check_exposure

NODE = {"node_name": "a", "peer_listen": "127.0.0.1:7602", "cluster_key_file": "key"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"peer_listen": ""}, "node_name also needs peer_listen"),
        ({"node_name": ""}, "peer_listen also needs node_name"),
        ({"cluster_key_file": ""}, "needs peer_ca"),
        ({"peer_ca": "ca.pem"}, "exclude each other"),
        ({"peer_ca": "ca.pem", "cluster_key_file": ""}, "peer_ca also needs tls_cert and tls_key"),
        ({"initial_cluster": "b=h:1,c=h:2"}, "initial_cluster does not contain node_name a"),
    ],
)
def test_what_does_not_go_together_is_said(changes: dict[str, str], text: str) -> None:
    assert resolve(flags=NODE).all_problems() == []

    (problem,) = resolve(flags={**NODE, **changes}).all_problems()
    assert text in problem


@pytest.mark.parametrize("text", ["a", "a=", "=h:1", "a=h:1,a=h:2", "a=h:1,b=h:1", "a b=h:1"])
def test_nodes_are_names_with_addresses_each_once(text: str) -> None:
    with pytest.raises(UnfitValue):
        NodeAddresses(7602).from_text(text)


def test_a_name_of_a_node_is_plain() -> None:
    assert NodeName().from_text("node-1.eu_west") == "node-1.eu_west"
    with pytest.raises(UnfitValue):
        NodeName().from_text("node/1")


def test_nodes_of_other_machines_need_tls() -> None:
    config = Config(node_name="a", peer_listen=("0.0.0.0", 7602))
    with pytest.raises(Exposed, match="set peer_ca, tls_cert and tls_key"):
        check_exposure(config, has_keys=False)

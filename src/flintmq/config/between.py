"""What is wrong between settings that are valid one by one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HERMES_NODE = "node-"


def hermes_node_name(id: int) -> str:
    """What a node is called that HermesMQ's clients know by its node id."""
    return f"{HERMES_NODE}{id}"


def problems_between(values: Mapping[str, Any]) -> list[str]:
    """Problems between settings that are valid one by one."""
    has_cert, has_key = values["tls_cert"] is not None, values["tls_key"] is not None
    if has_cert != has_key:
        given, missing = ("tls_cert", "tls_key") if has_cert else ("tls_key", "tls_cert")
        return [f"{given} also needs {missing}"]
    if values["tls_client_ca"] is not None and not has_cert:
        return ["tls_client_ca also needs tls_cert and tls_key"]
    return _problems_of_cluster(values, has_cert)


def _problems_of_cluster(values: Mapping[str, Any], has_cert: bool) -> list[str]:
    name, members = values["node_name"], values["initial_cluster"]
    if name is None or values["peer_listen"] is None:
        given = (
            *("node_name", "peer_listen", "initial_cluster", "join", "peer_address"),
            *("cluster_key_file", "peer_ca"),
        )
        missing = "node_name" if name is None else "peer_listen"
        return [f"{one} also needs {missing}" for one in given if values[one]][:1]
    # HermesMQ's nodes have no key; that they have an address for this machine only is checked
    # with all addresses.
    needs_key = name != hermes_node_name(values["hermes_node_id"]) or values["hermes"] is None
    if values["peer_ca"] is None and values["cluster_key_file"] is None and needs_key:
        return [
            "a node of a cluster needs peer_ca (TLS between nodes), or cluster_key_file if all "
            "nodes run on this machine"
        ]
    if values["peer_ca"] is not None and values["cluster_key_file"] is not None:
        return ["peer_ca and cluster_key_file exclude each other: TLS needs no key"]
    if values["peer_ca"] is not None and not has_cert:
        return ["peer_ca also needs tls_cert and tls_key"]
    if members and values["join"]:
        return ["initial_cluster and join exclude each other: found a new cluster, or join one"]
    if members and name not in [member.partition("=")[0] for member in members]:
        return [f"initial_cluster does not contain node_name {name}; list all nodes"]
    return []

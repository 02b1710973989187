"""A cluster on Kubernetes, as packaging/kubernetes has it, and what is watched of it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from flintmq.config.settings import resolve
from flintmq.daemon.exposure import check_exposure
from flintmq.frontends.http.metrics_docs import GROUPS

from .conftest import ROOT

KUBERNETES, GRAFANA = ROOT / "packaging/kubernetes", ROOT / "packaging/grafana"
VERSION = "1.33"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / "flintmq.yaml").read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    return next(one for one in manifests() if one["kind"] == kind)


def container() -> dict[str, Any]:
    found: dict[str, Any] = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("manifest", manifests(), ids=lambda one: f"{one['kind']}")
def test_every_manifest_is_as_its_schema_wants_it(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_a_manifest_with_a_typo_is_noticed() -> None:
    wrong = copy.deepcopy(of_kind("StatefulSet"))
    wrong["spec"]["podManagmentPolicy"] = "Parallel"
    with pytest.raises(kubernetes_validate.ValidationError, match="podManagmentPolicy"):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_nodes_find_each_other_before_they_are_ready_and_a_majority_stays() -> None:
    stateful = of_kind("StatefulSet")["spec"]
    headless = next(one for one in manifests() if one["metadata"]["name"] == "flintmq-nodes")
    assert stateful["serviceName"] == headless["metadata"]["name"]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"]
    assert stateful["podManagementPolicy"] == "Parallel"
    budget = of_kind("PodDisruptionBudget")["spec"]["maxUnavailable"]
    assert stateful["replicas"] - budget > stateful["replicas"] // 2
    labels = stateful["template"]["metadata"]["labels"]
    for one in manifests():
        selector = one["spec"]["selector"]
        assert labels.items() >= selector.get("matchLabels", selector).items()


def environment(name: str) -> dict[str, str]:
    """What the container of a pod gets."""
    found: dict[str, str] = {}
    for row in container()["env"]:
        if "valueFrom" in row:
            path = row["valueFrom"]["fieldRef"]["fieldPath"]
            found[row["name"]] = {"metadata.name": name, "metadata.namespace": "prod"}[path]
        else:
            found[row["name"]] = re.sub(r"\$\((\w+)\)", lambda m: found[m[1]], row["value"])
    return found


def test_the_settings_make_every_pod_a_node_of_the_cluster_that_may_be_reached() -> None:
    stateful = of_kind("StatefulSet")["spec"]
    for number in range(stateful["replicas"]):
        name = f"flintmq-{number}"
        resolved = resolve(environment=environment(name))
        missing = [fault for fault in resolved.problems if "does not exist" not in str(fault)]
        assert missing == []
        config = resolved.config()
        pairs = [member.partition("=")[::2] for member in config.initial_cluster]
        assert len(pairs) == stateful["replicas"]
        host, port = dict(pairs)[name].rsplit(":", 1)
        assert config.peer_address == (host, int(port))
        assert check_exposure(config, has_keys=True) == []
        assert config.drain_seconds < stateful["template"]["spec"]["terminationGracePeriodSeconds"]
        ports = {one["containerPort"] for one in container()["ports"]}
        assert config.http is not None
        assert ports == {config.listen[1], config.http[1], 7602}


def test_the_certificate_names_every_node_as_the_others_know_it() -> None:
    names = yaml.safe_load((KUBERNETES / "certificate.yaml").read_text())["spec"]["dnsNames"]
    for number in range(of_kind("StatefulSet")["spec"]["replicas"]):
        assert f"flintmq-{number}" in names


def test_probes_ask_what_a_node_answers() -> None:
    node = container()
    assert node["livenessProbe"]["httpGet"]["path"] == "/health"
    assert node["startupProbe"]["httpGet"]["path"] == "/health"
    assert node["readinessProbe"]["httpGet"]["path"] == "/ready"


# --- dashboard and alerts

METRICS = {name: family for table in GROUPS.values() for family in table for name in [family.name]}


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:flintmq|hermesmq)_\w+", expression))


def faults(expression: str) -> list[str]:
    """Names that no broker shows, and labels that a metric does not have."""
    found = []
    for name in names_in(expression):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        family = METRICS.get(name) or METRICS.get(base)
        if family is None or (family.kind == "histogram") != (family.name != name):
            found.append(name)
    return found


def expressions() -> list[str]:
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    queries = [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    groups = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    return [*queries, *shown, *(rule["expr"] for group in groups for rule in group["rules"])]


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_and_alerts_name_metrics_that_there_are(expression: str) -> None:
    assert names_in(expression)
    assert faults(expression) == []
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)


def test_the_page_on_clusters_names_metrics_that_there_are() -> None:
    named = {
        name
        for name in names_in((ROOT / "docs/cluster.md").read_text())
        if not name.endswith("_")  # `flintmq_cluster_*`: all of them
    }
    assert len(named) > 10
    assert named <= METRICS.keys()


def test_a_metric_that_is_not_there_is_noticed() -> None:
    assert faults("rate(flintmq_raft_comit_seconds_bucket[5m])")
    assert faults("flintmq_raft_commit_seconds"), "a histogram has no sample of its own name"


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    groups = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "remedy"}, rule["alert"]


def test_panels_of_the_dashboard_do_not_lie_over_each_other() -> None:
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])

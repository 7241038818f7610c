"""The dashboard and the alert rules speak of metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
import runpy
from importlib.metadata import entry_points

import promql_parser as promql
import pytest
import yaml

from coordinator.runtime.coordinator import Coordinator
from coordinator.shards.node_metrics import NodeMetrics
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
OWN = {"up": set()}
"""What Prometheus itself has of a job."""
OF_A_JOB = {"job", "instance"}
OF_A_SERIES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}


def series():
    """Return the labels of each series that a coordinator or a node has, by name."""
    metrics = NodeMetrics(10)
    with Coordinator.open(None, topics={"t": 1}, metrics=metrics) as coordinator:
        families = list(coordinator.metrics.registry.collect())
        known = {name: set(one._labelnames) for name, one in named(metrics.registry)}
    found = dict(OWN)
    for family in families:
        labels = set(known.get(family.name, set()))
        for sample in family.samples:
            labels |= sample.labels.keys()
        for suffix in OF_A_SERIES[family.type]:
            found[f"{family.name}{suffix}"] = labels | ({"le"} if suffix == "_bucket" else set())
    of_group = {"group_members", "group_lag", "load_spread"}  # without groups they have no samples
    return found | {name: {"group"} for name in of_group}


def named(registry):
    for collector in registry._collector_to_names:
        if hasattr(collector, "_labelnames"):
            yield collector._name, collector


@pytest.fixture(scope="module")
def known():
    return series()


def selectors(expr):
    """Yield the selectors of a query, and the labels that it groups by."""
    if isinstance(expr, promql.VectorSelector):
        yield expr.name, {one.name for one in expr.matchers.matchers}
    elif isinstance(expr, promql.MatrixSelector):
        yield from selectors(expr.vector_selector)
    elif isinstance(expr, promql.AggregateExpr):
        by = set(expr.modifier.labels) if expr.modifier else set()
        for name, labels in selectors(expr.expr):
            yield name, labels | by
    elif isinstance(expr, promql.BinaryExpr):
        yield from selectors(expr.lhs)
        yield from selectors(expr.rhs)
    elif isinstance(expr, promql.Call):
        for one in expr.args:
            yield from selectors(one)
    elif isinstance(expr, promql.ParenExpr | promql.UnaryExpr):
        yield from selectors(expr.expr)


def check(query, known):
    """Check one query, and return the series that it names."""
    plain = query.replace("$__rate_interval", "5m").replace("$job", "a").replace("$group", "a")
    found = list(selectors(promql.parse(plain)))
    assert found, query
    for name, labels in found:
        assert name in known, query
        assert labels - OF_A_JOB <= known[name], query
    return {name for name, _ in found}


def queries():
    board = json.loads((DEPLOY / "grafana.json").read_text())
    return [one["expr"] for panel in board["panels"] for one in panel.get("targets", ())]


def test_the_dashboard_is_what_its_program_prints():
    made = runpy.run_path(str(DEPLOY / "dashboard.py"))["dashboard"]()
    assert json.loads((DEPLOY / "grafana.json").read_text()) == made
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(set(numbers)) == len(numbers)
    corners = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(set(corners)) == len(corners)


def test_the_dashboard_shows_every_metric_and_no_other(known):
    shown = set().union(*(check(query, known) for query in queries()))
    wanted = {name for name in known if not name.endswith(("_count", "_sum"))} - OWN.keys()
    kept = {name for name in known if name in {"group_count", "consumer_group_count",
            "classic_group_count", "offset_count"}}  # fmt: skip
    assert shown == wanted | kept


def test_legends_name_labels_that_their_query_has(known):
    board = json.loads((DEPLOY / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            used = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            plain = target["expr"].replace("$__rate_interval", "5m")
            has = set().union(*(known[name] for name, _ in selectors(promql.parse(plain))))
            assert used <= has | OF_A_JOB, target


@pytest.fixture(scope="module")
def rules():
    tree = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in tree["groups"] for rule in group["rules"]]


def test_alerts_speak_of_metrics_that_there_are(rules, known):
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) > 10
    for rule in rules:
        assert check(rule["expr"], known)
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}


def test_each_alert_says_what_to_do(rules):
    for rule in rules:
        runbook = rule["annotations"]["runbook"]
        assert 40 < len(runbook) < 300, rule["alert"]
        for command in re.findall(r"muster (\w+)", runbook):
            assert command in entry_points(group="muster.commands").names, command
        for page in re.findall(r"docs/\S+\.md", runbook):
            assert (ROOT / page).exists()
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        plain = promql.parse(rule["expr"])
        kept = plain.lhs if isinstance(plain, promql.BinaryExpr) else plain
        if isinstance(kept, promql.AggregateExpr):
            assert used <= set(kept.modifier.labels if kept.modifier else ()), rule["alert"]

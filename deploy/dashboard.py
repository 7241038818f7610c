"""The Grafana dashboard: `python deploy/dashboard.py > deploy/grafana.json`.

A test compares the two, and the names here with the metrics that there are.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

WINDOW = "$__rate_interval"
JOB = '{job=~"$job"}'
OF_GROUP = '{job=~"$job",group=~"$group"}'
WIDTH, HEIGHT, COLUMNS = 8, 7, 3


class Panel(NamedTuple):
    """A graph: its title, unit in Grafana's words, and queries by their legends."""

    title: str
    unit: str
    queries: dict[str, str]
    text: str = ""


def per_second(name: str, *labels: str, of: str = JOB) -> str:
    """Return the query of a counter's rate, by labels."""
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by} (rate({name}_total{of}[{WINDOW}]))"


def quantiles(name: str, of: str = JOB) -> dict[str, str]:
    """Return the queries of a histogram's median, and of what one in a hundred exceeds."""
    rates = f"sum by (le) (rate({name}_bucket{of}[{WINDOW}]))"
    return {f"p{q}": f"histogram_quantile(0.{q}, {rates})" for q in (50, 99)}


ROWS: dict[str, list[Panel]] = {
    "Service": [
        Panel("Instances that coordinate", "short",
              {"{{state}}": f"sum by (state) (num_partitions{JOB})"},
              "One active log is served; the others stand by."),
        Panel("Store lost to another coordinator", "bool",
              {"{{instance}}": f"fenced{JOB}"}, "Expected once after a takeover."),
        Panel("Idle share of the event loop", "percentunit",
              {"{{instance}}": f"thread_idle_ratio_avg{JOB}"}, "Near 0: a core is used up."),
        Panel("Wait in the queue", "ms", quantiles("event_queue_time_ms")),
        Panel("Time of a batch", "ms", quantiles("event_processing_time_ms")),
        Panel("Time to make a batch durable", "ms", quantiles("batch_flush_time_ms")),
        Panel("Batches", "ops", {
            "durable": per_second("batch_flush"), "failed": per_second("commit_failed")}),
        Panel("Requests that wait", "short", {"{{instance}}": f"event_queue_size{JOB}"}),
        Panel("Failures behind the scenes", "ops", {
            "log maintenance": per_second("log_maintenance_failed"),
            "topics": per_second("topic_catalog_failed"),
            "telemetry: {{what}}": per_second("telemetry_lost", "what")}),
        Panel("Longest load of a log", "ms", {"{{instance}}": f"partition_load_time_max{JOB}"}),
    ],
    "Groups": [
        Panel("Groups", "short", {"{{protocol}}": f"sum by (protocol) (group_count{JOB})"}),
        Panel("Consumer groups by state", "short",
              {"{{state}}": f"sum by (state) (consumer_group_count{JOB})"}),
        Panel("Classic groups by state", "short",
              {"{{state}}": f"sum by (state) (classic_group_count{JOB})"}),
        Panel("Members", "short", {"{{group}}": f"sum by (group) (group_members{OF_GROUP})"}),
        Panel("Lag", "short", {"{{group}}": f"sum by (group) (group_lag{OF_GROUP})"}),
        Panel("Largest load minus smallest", "short",
              {"{{group}}": f"max by (group) (load_spread{OF_GROUP})"}),
        Panel("Rebalances by reason", "ops", {
            "{{reason}}": per_second("consumer_group_rebalance", "reason", of=OF_GROUP),
            "classic: {{reason}}": per_second("group_completed_rebalance", "reason", of=OF_GROUP)}),
        Panel("Partitions moved", "ops",
              {"{{group}}": per_second("moved_partitions", "group", of=OF_GROUP)}),
        Panel("Members fenced by cause", "ops",
              {"{{cause}}": per_second("fences", "cause", of=OF_GROUP)}),
        Panel("Targets", "ops", {
            "{{assignor}}": per_second("target_assignment", "assignor", of=OF_GROUP),
            "failed": per_second("target_assignment_failed", of=OF_GROUP),
            "lost": per_second("target_assignment_lost", of=OF_GROUP)}),
        Panel("Time to compute a target", "ms", quantiles("assignment_time_ms", OF_GROUP)),
        Panel("Offsets", "short", {"committed": f"sum (offset_count{JOB})"}),
        Panel("Commits", "ops", {
            "offsets committed": per_second("offset_commit"),
            "deleted or expired": per_second("offset_deletion")}),
    ],
    "Clients": [
        Panel("Connections", "short", {"{{instance}}": f"wire_connections{JOB}"}),
        Panel("Requests", "reqps", {"{{api}}": per_second("wire_requests", "api")}),
        Panel("Connections closed by reason", "ops",
              {"{{reason}}": per_second("wire_closed", "reason")}),
        Panel("Throttled", "ops", {"requests": per_second("wire_throttled")}),
        Panel("Time throttled", "ms", {"per second": per_second("wire_throttle_time_ms")}),
        Panel("Clients refused", "ops", {"{{client}}": per_second("wire_refused", "client")}),
        Panel("Push workers", "short", {"{{state}}": f"sum by (state) (push_workers{JOB})"}),
        Panel("Push requests", "reqps", {"{{kind}}": per_second("push_requests", "kind")}),
        Panel("Push workers lost", "ops", {
            "{{reason}}": per_second("push_lost", "reason"),
            "offsets refused": per_second("push_offsets_refused")}),
    ],
    "Nodes": [
        Panel("Shards by state", "short",
              {"{{instance}} {{state}}": f"sum by (instance, state) (shards{JOB})"}),
        Panel("Claims of shards", "ops", {
            "claimed": per_second("shard_claims"), "lost": per_second("shard_losses")}),
        Panel("Divides the shards", "bool", {"{{instance}}": f"coordinates_nodes{JOB}"}),
    ],
    "Watch: groups that Kafka coordinates": [
        Panel("Records read", "ops", {"read": per_second("watched_records")}),
        Panel("Records not read yet", "short", {"{{partition}}": f"watched_lag{JOB}"}),
        Panel("Not read", "ops", {
            "groups": per_second("watched_group_unread"),
            "passed over: {{type}}": per_second("watched_records_passed_over", "type"),
            "undecodable": per_second("watched_records_undecodable")}),
    ],
}  # fmt: skip


def draw(panel: Panel, number: int, top: int, place: int) -> dict[str, Any]:
    """Return a panel in Grafana's format."""
    row, column = divmod(place, COLUMNS)
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * WIDTH, "y": top + row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
            for at, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def choose(name: str, query: str) -> dict[str, Any]:
    """Return a choice at the top of the dashboard."""
    return {
        "name": name, "type": "query", "query": query, "multi": True, "includeAll": True,
        "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place})
        top += 1
        for at, panel in enumerate(row):
            panels.append(draw(panel, len(panels) + 1, top, at))
        top += -(-len(row) // COLUMNS) * HEIGHT
    return {
        "uid": "muster",
        "title": "Muster",
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                choose("job", "label_values(thread_idle_ratio_avg, job)"),
                choose("group", 'label_values(group_members{job=~"$job"}, group)'),
            ]
        },
        "panels": panels,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))

"""The metrics of Prometheus as OpenTelemetry's: the same names, labels and values.

Counters keep the name without `_total`, which a collector's exporter for Prometheus adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

CUMULATIVE = AggregationTemporality.CUMULATIVE
Points: TypeAlias = Sum | Gauge | Histogram


def read_metrics(
    registry: CollectorRegistry, resource: Resource, scope: str, since_ns: int, now_ns: int
) -> MetricsData:
    """Return all metrics of a registry.

    Parameters
    ----------
    since_ns
        Since when they are counted.
    """
    metrics = [
        Metric(family.name, family.documentation, "", data)
        for family in registry.collect()
        if (data := _convert(family, since_ns, now_ns)) is not None
    ]
    of = ScopeMetrics(InstrumentationScope(scope), metrics, "")
    return MetricsData([ResourceMetrics(resource, [of], "")])


def _convert(family: Family, since_ns: int, now_ns: int) -> Points | None:
    """Return the points of a metric; None where it has none."""
    samples: Iterable[Sample] = family.samples
    if family.type == "histogram":
        shown = _histograms(family, since_ns, now_ns)
        return Histogram(shown, CUMULATIVE) if shown else None
    if family.type == "counter":
        samples = [one for one in samples if one.name == f"{family.name}_total"]
    points = [NumberDataPoint(one.labels, since_ns, now_ns, one.value) for one in samples]
    if not points:
        return None
    return Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)


def _histograms(family: Family, since_ns: int, now_ns: int) -> Sequence[HistogramDataPoint]:
    """Return a point for each series; a bucket has what is above the one before."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for one in family.samples:
        labels = {name: value for name, value in one.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if one.name.endswith("_bucket"):
            buckets.setdefault(key, []).append((float(one.labels["le"]), one.value))
        elif one.name.endswith("_sum"):
            sums[key] = one.value
    points = []
    for key, found in buckets.items():
        bounds, totals = zip(*sorted(found), strict=True)
        counts = [int(after - before) for before, after in pairwise((0.0, *totals))]
        points.append(
            HistogramDataPoint(
                dict(key), since_ns, now_ns, int(totals[-1]), sums.get(key, 0.0), counts,
                bounds[:-1], None, None,  # type: ignore[arg-type] # Prometheus has no extremes
            )
        )  # fmt: skip
    return points

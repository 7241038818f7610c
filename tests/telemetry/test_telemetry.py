"""What a collector is sent; and that no collector, however bad, delays a request."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError
from coordinator.config.settings import ServerConfig, TelemetryConfig, parse
from coordinator.telemetry import telemetry
from coordinator.telemetry.collector import find_collector
from coordinator.telemetry.trace_values import RebalanceTrace, SpanValue
from tests.support.members import AT_ONCE, Members
from tests.telemetry.stand_in import attributes, collecting

BOTH = ("traces", "metrics")
BAD = ("error", "busy", "redirect", "garbage", "endless", "silent")


def config_for(url, send=("traces",), **more):
    return Config(kafka=AT_ONCE, telemetry=TelemetryConfig(send, url, **more))


def rebalance(config):
    """Let two members share a topic, and return for how long the slowest request took."""
    with Coordinator.open(None, topics={"clicks": 6}, config=config) as coordinator:
        members = Members(coordinator)
        began = time.monotonic()
        members.join("m1", "m2")
        members.settle()
        return time.monotonic() - began, lost(coordinator)


def lost(coordinator):
    found = coordinator.metrics.registry.get_sample_value
    return {what: found("telemetry_lost_total", {"what": what}) or 0 for what in BOTH}


def test_a_rebalance_is_one_trace():
    with collecting() as collector:
        rebalance(config_for(collector.url))
        collector.wait(lambda one: len(one.spans) >= 2)
        spans = collector.spans
        of = collector.resource()
    roots = [span for span in spans if not span.parent_span_id]
    assert {span.name for span in roots} == {"rebalance"}
    assert len({span.trace_id for span in spans}) == len(roots) >= 2  # when each came
    for root in roots:
        inside = [span for span in spans if span.trace_id == root.trace_id and span is not root]
        assert {span.parent_span_id for span in inside} == {root.span_id}
        assert {"target", "member"} == {span.name for span in inside}
        for span in inside:
            assert root.start_time_unix_nano <= span.start_time_unix_nano
            assert span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano
    last = attributes(max(roots, key=lambda root: attributes(root)["muster.group.epoch"]))
    assert last["messaging.consumer.group.name"] == "g"
    assert last["muster.reason"] == "member joined"
    assert last["muster.members"] == last["muster.members_shown"] == 2
    assert (of["service.name"], bool(of["service.version"])) == ("muster", True)


def test_metrics_are_those_of_prometheus():
    with collecting() as collector:
        config = config_for(collector.url, BOTH)
        with Coordinator.open(None, topics={"clicks": 6}, config=config) as coordinator:
            members = Members(coordinator)
            members.join("m1", "m2")
            members.settle()
            registry = coordinator.metrics.registry
        collector.wait(lambda one: len(one.got) >= 2)  # at the end, if not before
        found = collector.metrics
    families = {one.name: one for one in registry.collect() if one.samples}
    assert found.keys() == families.keys()
    assert {name: one.description for name, one in found.items()} == {
        name: one.documentation for name, one in families.items()
    }
    value = registry.get_sample_value
    (moved,) = found["consumer_group_rebalance"].sum.data_points
    assert attributes(moved) == {"group": "g", "reason": "member joined"}
    assert moved.as_double == value("consumer_group_rebalance_total", attributes(moved)) == 2
    assert found["consumer_group_rebalance"].sum.is_monotonic
    (flush,) = found["batch_flush_time_ms"].histogram.data_points
    assert flush.count == value("batch_flush_time_ms_count") == sum(flush.bucket_counts)
    assert flush.sum == value("batch_flush_time_ms_sum")
    for bound, total in zip(flush.explicit_bounds, _sums(flush.bucket_counts), strict=False):
        assert value("batch_flush_time_ms_bucket", {"le": f"{float(bound)}"}) == total
    states = {
        attributes(one)["state"]: one.as_double for one in found["num_partitions"].gauge.data_points
    }
    assert states.keys() == {"loading", "active", "failed"}
    assert generate_latest(registry)


def _sums(counts):
    total = 0
    for one in counts:
        total += one
        yield total


@pytest.mark.parametrize("mode", BAD)
def test_no_request_waits_for_a_bad_collector(mode, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with collecting(mode) as collector:
        config = config_for(collector.url)
        with Coordinator.open(None, topics={"clicks": 6}, config=config) as coordinator:
            members = Members(coordinator)
            members.join("m1", "m2")
            members.settle()
            collector.wait(lambda one: one.asked)
            began = time.monotonic()
            members.join("m3")
            members.settle()
            took_s = time.monotonic() - began
        assert took_s < 1  # the answers took no second, which the collector has
        assert time.monotonic() - began < 3 * telemetry.CLOSE_S
        found = lost(coordinator)["traces"]
    assert (
        found == 0 if mode == "endless" else found >= 2
    )  # the head of that answer says that it has them


def test_nothing_listens():
    took_s, _ = rebalance(config_for("http://127.0.0.1:9"))
    assert took_s < 1


def test_what_does_not_fit_is_dropped_and_counted():
    with collecting("silent") as collector:
        counted = []
        sending = telemetry.Telemetry(
            find_collector(config_for(collector.url)), None, "0", lambda *what: counted.append(what)
        )
        root = SpanValue("rebalance", 1, 2)
        full = RebalanceTrace(root, (root,) * (telemetry.SPANS_MAX // 4))
        sending.tell(full)
        collector.wait(lambda one: one.asked)
        for _ in range(6):
            sending.tell(full)
        assert counted == [("traces", 1)] * 3
        collector.ended.set()
        sending.close()
    assert sum(count for _, count in counted) == 7


def test_sampling_and_resource_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        rebalance(config_for(""))
        collector.wait(lambda one: one.spans)
        of = collector.resource()
        assert (of["service.name"], of["deployment.environment"]) == ("orders", "test")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        before = collector.asked
        _, dropped = rebalance(config_for(""))
        assert (collector.asked, dropped["traces"]) == (before, 0)
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        assert find_collector(config_for("")) is None


def test_headers_of_a_file_are_sent_and_not_shown(tmp_path, caplog):
    file = tmp_path / "headers"
    file.write_text("# ours\nAuthorization: Bearer s3cret, with a comma\n\nx-tenant: ops\n")
    file.chmod(0o600)
    with collecting() as collector:
        rebalance(config_for(collector.url, headers_file=str(file)))
        collector.wait(lambda one: one.headers)
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
    assert (sent["authorization"], sent["x-tenant"]) == ("Bearer s3cret, with a comma", "ops")
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no header: write name: value"),
        ("Bearer s3cret", "has no header in line 1: write name: value"),
        ("a: b\nx y: s3cret", "has no header in line 2: write name: value"),
        ("a: s3cret\x07", "has no header in line 1: write name: value"),
        ("é: s3cret", "cannot be read: it is not ASCII"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_bad_file_of_headers_is_named_without_its_secret(text, says, tmp_path):
    file = tmp_path / "headers"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError) as error:
        find_collector(config_for("", headers_file=str(file)))
    assert str(error.value) == f"telemetry.headers_file {file} {says}"


def test_a_secret_goes_over_tls_or_stays_here(tmp_path):
    file = tmp_path / "headers"
    file.write_text("a: b")
    config = config_for("http://collector.example:4318", headers_file=str(file))
    with pytest.raises(
        ConfigError, match=r"plain http to collector\.example: give an https endpoint"
    ):
        find_collector(config)
    assert find_collector(replace(config, server=ServerConfig(insecure=True))).headers == {"a": "b"}
    secure = config_for("https://collector.example/otlp/", headers_file=str(file))
    assert find_collector(secure).url_of("traces") == "https://collector.example/otlp/v1/traces"


@pytest.mark.parametrize("name", ["ENDPOINT", "TRACES_ENDPOINT"])
def test_a_secret_does_not_go_where_variables_would_send_it_in_the_open(
    name, tmp_path, monkeypatch
):
    file = tmp_path / "headers"
    file.write_text("a: b")
    config = config_for("", headers_file=str(file))
    for url in ("http://collector.example:4318", "HTTP://collector.example", "http://[::1"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", url)
        with pytest.raises(ConfigError, match="over plain http to"):
            find_collector(config)
    for url in ("http://127.0.0.1:4318", "https://collector.example"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", url)
        assert find_collector(config).headers == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('send = ["logs"]', "Invalid enum value 'logs'"),
        ('send = "traces"', "Expected `array`"),
        ("members_max = 1001", "telemetry.members_max is 1001: give 1000 or less"),
        ("members_max = -1", "telemetry.members_max is -1: give 0 or more"),
        ('endpoint = "collector:4318"', "telemetry.endpoint is not a plain URL"),
        ('endpoint = "http://ann:s3cret@collector:4318"', "telemetry.endpoint is not a plain URL"),
    ],
)
def test_bad_settings_are_refused(text, says):
    with pytest.raises(ConfigError) as error:
        parse(f"[telemetry]\n{text}", "muster.toml")
    assert says in str(error.value)
    assert "s3cret" not in str(error.value)


def test_another_protocol_is_refused(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(
        ConfigError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL is grpc: Muster sends http/protobuf"
    ):
        find_collector(config_for(""))


@pytest.mark.parametrize("interval", ["inf", "nan", "-1", "1e300", "soon", "0"])
def test_an_odd_interval_of_metrics_stops_no_traces(interval, monkeypatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)
    with collecting() as collector:
        rebalance(config_for(collector.url, BOTH))
        collector.wait(lambda one: one.spans)


@pytest.mark.parametrize(
    "endpoint", ["collector", "http://", "ftp://127.0.0.1", "http://127.0.0.1:99999"]
)
def test_an_odd_endpoint_of_the_environment_loses_traces_alone(endpoint, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "x")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "x")
    took_s, _ = rebalance(config_for(""))
    assert took_s < 1


def test_off_makes_no_thread_and_imports_nothing():
    assert find_collector(Config()) is None
    with Coordinator.open(None, topics={"clicks": 6}) as coordinator:
        assert type(coordinator.metrics.follow(dict)).__name__ == "Follower"

"""The chart: what its values are, and what `helm template` makes of them where there is a helm."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import tomllib
from dataclasses import replace

import pytest
import yaml

from coordinator.cli.serve import serve
from coordinator.config import parse
from coordinator.http.page_server import PageServer
from coordinator.runtime.coordinator import Coordinator
from coordinator.wire.codec import Api
from tests.conftest import ROOT
from tests.oauth.made_tokens import current, token_settings
from tests.support.wire_client import Client
from tests.wire.test_access import certificates

__all__ = ["certificates"]

CHART = ROOT / "deploy" / "chart"
HELM = shutil.which("helm") if os.environ.get("MUSTER_INSTALL") else None
needs_helm = pytest.mark.skipif(HELM is None, reason="make test-install, with helm on the path")
BUCKET = {"store": {"url": "s3://bucket/orders"}}
CASES = {
    "volume": {},
    "bucket": BUCKET,
    "one": {"replicas": 1, "store": {"volume": {"accessModes": ["ReadWriteOnce"]}}},
    "nodes": {"replicas": 3, "store": {"url": "s3://bucket/orders", "shards": 64}},
    "all": BUCKET | {
        "config": '[server]\nhttp_tls = true\n[kafka]\n"offsets.retention.minutes" = 10\n',
        "files": {"acls.toml": '  super_users = ["User:ann"]\n', "1": "{{ no }}: template\n"},
        "insecure": True, "secrets": {"tls": "muster-tls"}, "envFrom": [{"secretRef": {"name": "k"}}],
        "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
        "serviceMonitor": {"enabled": True, "endpoint": {"tlsConfig": {"serverName": "muster"}}},
        "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True},
        "nodeSelector": {"disk": "ssd"}, "podAnnotations": {"a": "b"}, "priorityClassName": "high",
    },
}  # fmt: skip
REFUSED = {
    "a stand-by that sees no store": {"store": {"volume": {"accessModes": ["ReadWriteOnce"]}}},
    "a name that is none": {"replica": 3},
    "a store that is none": {"store": {"url": "/var/lib"}},
    "no pod": {"replicas": 0},
    "too little time to hand over": {"terminationGracePeriodSeconds": 5},
    "two servers on one port": {"port": 9095},
    "a size that is none": {"store": {"volume": {"size": "lots"}}},
    "the settings as a further file": {"files": {"muster.toml": ""}},
    "a file in another folder": {"files": {"../passwd": ""}},
    "a secret that can be none": {"secrets": {"tls": "a/b"}},
    "a variable that can be none": {"env": [{"name": "A=B", "value": "c"}]},
    "an interval that is none": {"serviceMonitor": {"enabled": True, "interval": "soon"}},
    "fewer than no pods": {"podDisruptionBudget": {"maxUnavailable": -1}},
}


def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def helm(*words, given=None):
    version = ("--kube-version", "1.30.0")
    command = [HELM, *words, *version, "--values", "-"]
    return subprocess.run(
        command, input=yaml.safe_dump(given or {}), cwd=CHART, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made():
    """What each case makes: objects by kind, of which a pod is one."""
    found = {}
    for name, given in CASES.items():
        done = helm("template", "groups", ".", "--namespace", "streams", given=given)
        assert done.returncode == 0, (name, done.stderr)
        objects = [one for one in yaml.safe_load_all(done.stdout) if one]
        found[name] = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    return found


def pod_of(objects):
    (workload,) = (
        one for (kind, _), one in objects.items() if kind in {"Deployment", "StatefulSet"}
    )
    return workload, workload["spec"]["template"]["spec"]


def test_the_version_is_the_projects():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_every_value_is_used_and_in_the_schema():
    templates = "".join(file.read_text() for file in (CHART / "templates").iterdir())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def names(tree, known, path=()):
        for name, value in tree.items():
            assert name in known["properties"], f"{path} {name} is not in the schema"
            below = known["properties"][name]
            if isinstance(value, dict) and "properties" in below:
                yield from names(value, below, (*path, name))
            else:
                yield ".".join((*path, name))

    listed = list(names(values(), schema))
    assert [name for name in listed if f".Values.{name}" not in templates] == []
    used = set(re.findall(r"\.Values\.([\w.]+)", templates))
    assert {name for name in used if name not in listed} == set()


def test_the_chart_starts_a_command_that_there_is():
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    known = {f"--{name}" for name in serve.__annotations__} | {"--http"}
    options = set(re.findall(r"^ +- (--[a-z-]+)$", text, re.MULTILINE))
    assert len(options) >= 7
    assert options <= known


def test_the_values_of_the_guide_start_a_server(certificates, tmp_path, caplog):
    """With logins by tokens, access lists, topics, and metrics for a login only."""
    text = (ROOT / "docs/guide/deploy.md").read_text()
    (given,) = (one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "jwks" in one)
    given = yaml.safe_load(given)
    assert given.keys() <= values().keys()
    for name, body in given["files"].items():
        (tmp_path / name).write_text(body)
    for name in given["secrets"]:
        (tmp_path / name).mkdir()
    for name, source in (("tls.crt", "server.pem"), ("tls.key", "server.key")):
        (tmp_path / "tls" / name).write_bytes((certificates / source).read_bytes())
    (tmp_path / "users/users.toml").write_text('[users]\nprometheus = "secret"\n')
    tokens = token_settings(tmp_path)
    config = given["config"].replace("/etc/muster-secrets", str(tmp_path))
    config = config.replace("/etc/muster", str(tmp_path))
    for name in ("jwks", "issuer", "audience"):
        config = re.sub(rf"(?m)^{name} = .*", f'{name} = "{getattr(tokens, name)}"', config)
    read = parse(config, "the guide")
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    with (
        Coordinator.open(None, config=read) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
        Client(serving.address, trusting) as client,
    ):
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        login = b"n,,\x01auth=Bearer " + current(sub="orders").encode() + b"\x01\x01"
        client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=login)
        assert int(client.join("g", "m1", "orders").error_code) == 0
    PageServer(replace(read.server, http_listen="0.0.0.0:0")).close()
    assert "listens beyond" not in caplog.text


@needs_helm
def test_the_chart_has_no_lint():
    done = helm("lint", ".", "--strict")
    assert done.returncode == 0, done.stdout


@needs_helm
@pytest.mark.parametrize("name", REFUSED)
def test_values_that_cannot_work_are_refused(name):
    done = helm("template", "groups", ".", given=REFUSED[name])
    assert done.returncode != 0
    assert done.stderr


@needs_helm
@pytest.mark.parametrize("name", CASES)
def test_pods_may_do_little_and_say_how_they_are(made, name):
    workload, pod = pod_of(made[name])
    (container,) = pod["containers"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= (
        workload["spec"]["template"]["metadata"]["labels"].items()
    )
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]["scheme"]
        assert asked == ("HTTPS" if "http_tls" in CASES[name].get("config", "") else "HTTP")
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}
    kinds = {kind for kind, _ in made[name]}
    assert {"Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget"} <= kinds
    assert ("PersistentVolumeClaim" in kinds) == ("url" not in CASES[name].get("store", {}))


@needs_helm
def test_one_pod_of_a_store_serves_and_a_rollout_waits_for_none(made):
    workload, pod = pod_of(made["bucket"])
    assert workload["kind"] == "Deployment"
    assert workload["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    args = pod["containers"][0]["args"]
    assert args[args.index("--advertised") + 1] == "groups-muster.streams.svc:9092"
    assert args[args.index("--store") + 1] == "s3://bucket/orders"
    assert "--insecure" not in args


@needs_helm
def test_nodes_have_names_and_ids_of_their_own(made):
    workload, pod = pod_of(made["nodes"])
    assert (workload["kind"], workload["spec"]["replicas"]) == ("StatefulSet", 3)
    service = made["nodes"]["Service", workload["spec"]["serviceName"]]
    assert service["spec"]["publishNotReadyAddresses"]
    args = pod["containers"][0]["args"]
    assert args[args.index("--advertised") + 1] == (
        "$(POD_NAME).groups-muster-nodes.streams.svc:9092"
    )
    assert args[args.index("--shards") + 1] == "64"
    assert {one["name"] for one in pod["containers"][0]["env"]} == {"POD_NAME", "POD_INDEX"}


@needs_helm
def test_alerts_and_the_dashboard_are_those_of_the_folder(made):
    rule = made["all"]["PrometheusRule", "groups-muster"]
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())
    dashboard = made["all"]["ConfigMap", "groups-muster-dashboard"]["data"]["muster.json"]
    assert json.loads(dashboard) == json.loads((ROOT / "deploy/grafana.json").read_text())
    monitor = made["all"]["ServiceMonitor", "groups-muster"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "muster"})
    files = made["all"]["ConfigMap", "groups-muster"]["data"]
    assert tomllib.loads(files["muster.toml"])["server"] == {"http_tls": True}
    assert tomllib.loads(files["acls.toml"]) == {"super_users": ["User:ann"]}
    assert files["1"] == "{{ no }}: template\n"

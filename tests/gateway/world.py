"""A gateway before brokers that are threads."""

from contextlib import contextmanager

from coordinator import Coordinator
from coordinator.config import Config, GatewayConfig, ServerConfig, TopicsConfig
from coordinator.gateway.cluster import KafkaBehind
from coordinator.gateway.gateway import Gateway, read_settings
from coordinator.wire.listener import serve
from tests.gateway.fake_kafka import FakeKafka


@contextmanager
def gateway(kafka, gateway=None, **server):
    """Serve a cluster on free ports; gives the coordinator, and the address where clients begin."""
    own = GatewayConfig(**(gateway or {}))
    config = Config(
        server=ServerConfig(**{"listen": "127.0.0.1:0"} | server),
        gateway=own,
        topics=TopicsConfig(poll_ms=100),
    )
    behind = KafkaBehind(read_settings(kafka.address, own))
    behind.topics()
    front = kafka.front = Gateway(behind, config)
    with (
        Coordinator.open(None, topics=behind, config=config) as coordinator,
        serve(coordinator, front=front) as serving,
    ):
        yield coordinator, serving.address


@contextmanager
def gateway_of(count=1, cluster=None, **words):
    """Serve a new cluster."""
    with (
        FakeKafka(count, **(cluster or {})) as kafka,
        gateway(kafka, **words) as (coordinator, address),
    ):
        yield kafka, coordinator, address

"""`muster gateway`: a Kafka cluster whose clients get Muster's groups, through one address."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.main import load_config
from coordinator.cli.options import (
    AdvertisedOption,
    ConfigOption,
    HttpOption,
    InsecureOption,
    LogLevelOption,
    StoreOrNone,
    TakeoverOption,
    WebOption,
)
from coordinator.cli.service import (
    Service,
    Stop,
    check_single_log,
    check_store,
    check_web,
    explain_address,
    open_in_thread,
    warn_of_readers,
    with_addresses,
)
from coordinator.cli.terminal import log_to_stderr
from coordinator.config import KAFKA, Config, ConfigError
from coordinator.runtime.threads_left import end_process
from coordinator.storage.lease import Takeover

if TYPE_CHECKING:
    from coordinator.gateway.cluster import KafkaBehind
    from coordinator.runtime.coordinator import Coordinator


def gateway(
    kafka: Annotated[
        str, typer.Option(help="host:port,… of some brokers of the cluster behind it.")
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            help="host:port where clients begin [127.0.0.1:9092]; brokers have the ports behind it."
        ),
    ] = None,
    advertised: AdvertisedOption = None,
    first_broker_id: Annotated[
        int | None,
        typer.Option(help="The lowest id of the cluster's brokers [gateway.first_broker_id]."),
    ] = None,
    store: StoreOrNone = None,
    takeover: TakeoverOption = Takeover.WAIT,
    http: HttpOption = None,
    web: WebOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Pass a Kafka cluster on to its clients, and coordinate their groups; for tests and trials.

    Example: `muster gateway --kafka localhost:9092 --store trial`
    """
    settings = with_addresses(load_config(config), http, web, insecure=insecure)
    server, own = settings.server, settings.gateway
    if first_broker_id is not None:
        own = replace(own, first_broker_id=first_broker_id)
    server = replace(
        server, listen=listen or server.listen, advertised=advertised or server.advertised
    )
    settings = replace(settings, server=server, gateway=own)
    log_to_stderr(log_level or server.log_level, server.log_format)
    warn_of_readers(config, settings)
    if settings.web.listen:
        check_web(settings, store)
    check_single_log(store)
    check_store(store, settings)
    _serve(settings, store, _look_behind(kafka, settings), kafka, takeover)
    end_process(0)


def _look_behind(kafka: str, settings: Config) -> KafkaBehind:
    """Return the cluster behind the gateway, looked at once.

    Raises
    ------
    ConfigError
        It does not answer, or its settings cannot be used.
    """
    from coordinator.gateway.cluster import KafkaBehind  # noqa: PLC0415
    from coordinator.gateway.gateway import check_access, read_settings  # noqa: PLC0415

    check_access(settings)
    behind = KafkaBehind(read_settings(kafka.removeprefix(KAFKA), settings.gateway))
    try:
        behind.topics()
    except OSError as error:
        raise ConfigError(
            f"--kafka {kafka} does not answer: {error}: start it, or give the address and login "
            "([gateway] kafka) of a broker that runs"
        ) from None
    if not behind.seen.versions:
        raise ConfigError(
            f"--kafka {kafka}: none of its brokers answers at the address that it names "
            f"({', '.join(map(str, behind.seen.addresses.values()))}): make these reachable here"
        )
    return behind


def _serve(
    settings: Config, store: str | None, behind: KafkaBehind, kafka: str, takeover: Takeover
) -> None:
    """Stand by until this process has the store, then serve until stopped or fenced."""
    from coordinator.gateway.gateway import Gateway  # noqa: PLC0415
    from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415
    from coordinator.wire.listener import serve  # noqa: PLC0415

    front = Gateway(behind, settings)
    reload: list[Callable[[], object]] = []

    def open_store(stop: Stop) -> Coordinator | None:
        address = settings.server.advertised or settings.server.listen
        opening = open_in_thread(
            stop,
            lambda: Coordinator.open(
                store, config=settings, topics=behind, takeover=takeover, address=address
            ),
        )
        return None if opening is None else opening.result()

    def start(opened: Coordinator, open_now: ExitStack) -> tuple[Coordinator, str]:
        coordinator = open_now.enter_context(opened)
        with explain_address("server.listen (--listen)"):
            serving = open_now.enter_context(serve(coordinator, front=front))
        reload.append(serving.reload)
        kept = f"store {store}" if store else "nothing is stored: no --store"
        return coordinator, f"muster serves Kafka at {kafka} as {serving.address} ({kept})"

    Service(open=open_store, start=start, hang_up=lambda: [one() for one in reload]).run(
        settings, store
    )

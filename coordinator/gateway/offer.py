"""Which APIs a gateway offers: those of groups are Muster's, the others those of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS, Api

Versions: TypeAlias = Mapping[int, tuple[int, int]]
"""The lowest and highest version of each API, by its key."""
NONE_OFFERED: Versions = MappingProxyType({})
SHARED = (
    Api.FIND_COORDINATOR,
    Api.DESCRIBE_CONFIGS,
    Api.ALTER_CONFIGS,
    Api.INCREMENTAL_ALTER_CONFIGS,
    Api.LIST_CONFIG_RESOURCES,
)
"""APIs that Muster answers for groups, and the cluster for what else may be asked by them."""
OURS = (
    *CLASSIC_VERSIONS,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.DESCRIBE_GROUPS,
    Api.LIST_GROUPS,
    Api.API_VERSIONS,
    Api.DELETE_GROUPS,
    Api.OFFSET_DELETE,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.CONSUMER_GROUP_DESCRIBE,
    *SHARED,
)
LOGINS = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
TOKENS = (38, 39, 40, 41)
"""APIs of delegation tokens: a token of the gateway's own user would outlive the gateway."""
FORWARDED: Versions = {
    **{int(api): VERSIONS[api] for api in (*SHARED, *LOGINS)},
    **{
        key: (0, most)
        for key, most in {
            0: 9, 1: 15, 2: 11, 3: 13, 19: 7, 20: 6, 21: 2, 22: 6, 23: 4, 24: 5, 26: 5, 27: 2,
            29: 3, 30: 3, 31: 3, 34: 2, 35: 5, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 43: 2, 45: 1,
            46: 0, 48: 1, 49: 1, 50: 0, 51: 0, 55: 1, 57: 2, 60: 2, 61: 0, 64: 0, 65: 0, 66: 2,
            71: 0, 72: 0, 75: 0, 80: 1, 81: 0,
        }.items()
    },
}  # fmt: skip
"""What may go to the cluster, up to the versions of Kafka 4.4. Left out are versions
whose answers name brokers in places where they are not rewritten: Produce 10, Fetch 16,
DescribeQuorum 2; and what only Kafka's own coordinator of groups can do: offsets in transactions
(25, 28), share groups (76 to 79, 90 to 92), streams groups (88, 89)."""


def own_versions(
    served: Mapping[Api, tuple[int, int]], *, with_login: bool
) -> dict[Api, tuple[int, int]]:
    """Return what Muster answers behind a gateway, of what its server has."""
    ours = (*OURS, *(LOGINS if with_login else ()))
    return {api: served[api] for api in ours if api in served}


def forwarded_versions(brokers: Iterable[Versions], *, passes_logins: bool) -> Versions:
    """Return what goes to the cluster: what all its brokers have, and a gateway can forward.

    Parameters
    ----------
    brokers
        What each broker has.
    passes_logins
        Whether clients log in at the brokers, not here.
    """
    left_out = set() if passes_logins else {*TOKENS, *map(int, LOGINS)}
    spans = {key: span for key, span in FORWARDED.items() if key not in left_out}
    everywhere = list(brokers)
    found = {}
    for key, span in spans.items() if everywhere else ():
        both = [span, *(one.get(key, (0, -1)) for one in everywhere)]
        low, high = max(one[0] for one in both), min(one[1] for one in both)
        if low <= high:
            found[key] = low, high
    return found


def offered_versions(own: Mapping[Api, tuple[int, int]], forwarded: Versions) -> Versions:
    """Return what clients may send."""
    ours = {int(api): span for api, span in own.items() if api not in SHARED}
    return {**ours, **forwarded}

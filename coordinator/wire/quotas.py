"""Quotas of requests and bytes a second for each client, as Kafka has them.

Who goes beyond a quota is answered, told how long to wait (the throttle time), and not listened to
for so long. Pure: the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.config import QuotasConfig

BURST_S = 10.0
"""A client may be behind its quota by so much and catch up at once; Kafka's window is 11 s."""
THROTTLE_S_MAX = 10.0
"""Longer than that nobody has to wait: members have to beat."""
CLIENTS_MAX = 10_000
"""Of so many clients it is known what they used; of more, those that asked last."""
NAME_MAX = 255
"""Clients whose names begin with the same so many characters count as one."""


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: what a client may still use, refilled over time.

    Attributes
    ----------
    left
        Below 0, the client is throttled.
    rate
        What is added a second.
    """

    rate: float
    left: float
    at_s: float

    def take(self, amount: float, now_s: float) -> float:
        """Take tokens, and return the seconds until the bucket is above zero again."""
        grown = self.left + (now_s - self.at_s) * self.rate
        self.left = max(min(grown, self.rate * BURST_S) - amount, -self.rate * THROTTLE_S_MAX)
        self.at_s = now_s
        return max(-self.left / self.rate, 0.0)


class Quotas:
    """The quotas of requests and bytes, by client.

    Attributes
    ----------
    is_limited
        Whether any client is limited.
    """

    def __init__(self, config: QuotasConfig) -> None:
        self._requests = _Quota(config.requests_per_s_max, config.requests_per_s)
        self._bytes = _Quota(config.bytes_per_s_max, config.bytes_per_s)
        self.is_limited = self._requests.is_limited or self._bytes.is_limited

    def charge(self, client: str, requests: int, size: int, now_s: float) -> int:
        """Charge a client, and return its throttle time in ms.

        Parameters
        ----------
        client
            Its principal, or its client id where nobody logs in.
        """
        waits = (
            self._requests.charge(client, requests, now_s),
            self._bytes.charge(client, size, now_s),
        )
        return round(max(waits) * 1000)


class _Quota:
    """One quota: a default, and others by client; 0 is unlimited."""

    def __init__(self, of_all: int, of_one: Mapping[str, int]) -> None:
        self._of_all = of_all
        self._of_one = of_one
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self.is_limited = of_all > 0 or any(of_one.values())

    def charge(self, client: str, amount: int, now_s: float) -> float:
        rate = self._of_one.get(client, self._of_all)
        if not rate:
            return 0.0
        client = client[:NAME_MAX]
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(rate, rate * BURST_S, now_s)
            if len(self._buckets) > CLIENTS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(client)
        return bucket.take(amount, now_s)

"""The shards that a node has: each is read, claimed, served and let go here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from coordinator.clock import monotonic_ms, wall_ms
from coordinator.config import Config
from coordinator.engines.engine import Engine
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import LOST
from coordinator.runtime.coordinator import Coordinator
from coordinator.shards.catalog import SharedCatalog
from coordinator.shards.inbox_rounds import config_of_part
from coordinator.shards.load_order import LoadOrder
from coordinator.shards.node_metrics import NodeMetrics
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import LogError
from coordinator.storage.shards import Shards, shard_at
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import files_at, is_remote

LOADS_AT_ONCE = 4
"""From an object store, whose answers take long; from a disk it is one at a time."""
LOOK_S = 0.2
"""How often it is looked whether much has changed, and how long ago nodes may have been read."""
LOOK_LOST_S = 0.02
"""The same while no node has named the owner of a shard that was lost."""
LOOK_MOST_S = 5.0
"""How seldom we look whether a departing shard was claimed, after many looks."""
RETRY_S = WATCH_S = 1.0
"""How often a thread looks at its shard; what says that it must go wakes it at once. There may be
hundreds, and each takes Python's lock from the one that loads."""
logger = logging.getLogger("muster.shards")


class Stop(Protocol):
    """What says that a shard must go."""

    def is_set(self) -> bool:
        """Whether it is."""

    def wait(self, timeout: float) -> bool:
        """Wait until it is, or so many seconds; return whether it is."""


class ShardsHere:
    """What a node has of a store's shards.

    Parameters
    ----------
    root
        Of the store.
    config, catalog, metrics
        Of each shard's coordinator.
    make_engine
        Makes what computes very large targets for a shard; None finds it by the entry points.
    start
        Starts a thread that has a name.
    tell
        Tells the other nodes what this one has, where that changed.
    ending
        Set once the node closes; its threads end with it.
    claimed_elsewhere
        Returns the newest epoch by which another node says it has claimed a shard.
    looked_at
        Returns the log of a shard that was looked at before it came here.
    """

    def __init__(
        self,
        root: str,
        shards: Shards,
        config: Config,
        catalog: SharedCatalog,
        metrics: NodeMetrics,
        start: Callable[[Callable[[], object], str], threading.Thread],
        tell: Callable[[], None],
        ending: threading.Event,
        make_engine: Callable[[], Engine] | None = None,
        claimed_elsewhere: Callable[[int], int] = lambda _: 0,
        looked_at: Callable[[int], LogAhead | None] = lambda _: None,
    ) -> None:
        self._root, self._shards, self._config = root, shards, config
        self._make_engine, self._claimed_elsewhere = make_engine, claimed_elsewhere
        self._catalog, self._metrics, self._looked_at = catalog, metrics, looked_at
        self._start, self._tell, self._ending = start, tell, ending
        self.owner, self.address = "", ""
        """What a claim says of the node."""
        self._here: dict[int, Coordinator] = {}
        self._loading: set[int] = set()
        self._claimed: dict[int, int] = {}
        """The claims, by their epochs, of shards whose logs are not loaded yet."""
        self._empty: set[int] = set()
        """Shards that it owns, which have no log yet: the first request makes one."""
        self._given_ms: dict[int, int] = {}
        """When it was given shards that it has not served since."""
        self._had: dict[int, Stop] = {}
        """Shards that are its own, each with what says that it must go."""
        self._lost: dict[int, int] = {}
        """Our last claims, by their epochs, of shards that other nodes have and we let go."""
        self._changing = threading.RLock()
        self._order = LoadOrder(LOADS_AT_ONCE if is_remote(root) else 1)

    def find(self, group_id: str) -> Coordinator | GroupError:
        """Return the coordinator of a group, or the error that refuses its requests."""
        shard = self._shards.shard_of(group_id)
        is_ours = shard in self._claimed or shard in self._empty
        found = self._here.get(shard)
        if found is not None:
            return found
        self.ask(shard)
        if not is_ours:  # its owner answers until we have claimed it
            return refuse_elsewhere(group_id, f"shard {shard}")
        if shard not in self._loading:
            self._start(lambda: self._claim_asked(shard), f"muster-shard-{shard}")
        return GroupError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Shard {shard}, which has group {group_id}, is being loaded: try again.",
        )

    def ask(self, shard: int, *, has_owner: bool = True) -> None:
        """Have a shard that comes here loaded before those that no client asks for.

        One that no node has may come, as all do to a node that starts.
        """
        if shard in self._had or not has_owner:
            self._order.ask(shard)

    def list_open(self) -> list[Coordinator]:
        """Return the coordinators of the shards that are served, by their numbers."""
        with self._changing:
            return [self._here[shard] for shard in sorted(self._here)]

    def get(self, shard: int) -> Coordinator | None:
        """Return the coordinator of a shard, where it is served here."""
        return self._here.get(shard)

    def claims(self) -> dict[int, int]:
        """Return the shards that are here, each with the epoch of its claim; 0 without a log."""
        with self._changing:
            claimed = {n: one.epoch for n, one in self._here.items() if one.status not in LOST}
            return dict.fromkeys(self._empty, 0) | self._claimed | claimed

    def has_none(self) -> bool:
        """Whether others have claimed all shards that we have claimed, or are about to."""
        return not self._loading and all(one.confirm_status() in LOST for one in self.list_open())

    @property
    def stuck_ms(self) -> int:
        """For how long the store has kept a shard from answering."""
        return max((one.stuck_ms for one in self.list_open()), default=0)

    def list_asked(self) -> dict[int, tuple[int, int]]:
        """Return how much was asked of each shard that is served, with the epoch of its claim."""
        with self._changing:
            here = sorted(self._here.items())
            return {n: (one.epoch, one.asked) for n, one in here if one.status not in LOST}

    def list_lost(self) -> dict[int, int]:
        """Return the shards that others have claimed, each with the epoch of our claim."""
        with self._changing:
            lost = {n: one.epoch for n, one in self._here.items() if one.status in LOST}
            return self._lost | lost

    def count(self, state: str) -> int:
        """Return how many shards of this node are in a state of `STATES`."""
        with self._changing:
            served = sum(one.status not in LOST for one in self._here.values())
            return {"served": served, "loading": len(self._loading)}.get(state, len(self._empty))

    def is_here(self, shard: int, epoch: int) -> bool:
        """Whether no claim after that epoch is known, and this node has the shard."""
        return shard in self._empty or self.claims().get(shard, -1) >= epoch

    def have(self, shard: int, stop: Stop) -> None:
        """Have a shard until it must go; the next claim of it then ends our service."""
        with self._changing:
            self._had[shard] = stop
        self._given_ms[shard] = monotonic_ms()
        self._make_way(shard, on=False)
        try:
            while not stop.is_set():
                if shard in self._empty or self._have_beside(shard, stop):
                    self._wait_until_lost(shard, stop)
                else:
                    stop.wait(RETRY_S)
        finally:
            with self._changing:
                self._empty.discard(shard)
                self._had.pop(shard, None)
            self._let_go(shard)

    def _have_beside(self, shard: int, stop: Stop) -> bool:
        """Try to have a shard, unless it must go: a store that does not answer keeps no one here.

        What is claimed all the same is let go then.
        """
        found: list[bool] = []

        def run() -> None:
            found.append(self._try_to_have(shard))
            self._let_go(shard)

        claims = self._start(run, f"muster-claims-{shard}")
        claims.join(LOOK_S)  # on a disk, a small shard is here by then
        while claims.is_alive() and not stop.wait(WATCH_S):
            pass
        return bool(found and found[0])

    def _let_go(self, shard: int) -> None:
        """Let another node claim a shard that is here and not our own."""
        with self._changing:
            ours = None if shard in self._had else self._make_way(shard, on=True)
        if ours is not None:
            self._start(lambda: self._close_once_lost(shard, ours), f"muster-leaves-{shard}")

    def _make_way(self, shard: int, *, on: bool) -> Coordinator | None:
        """Let another node claim a shard that is here, or no longer."""
        ours = self._here.get(shard)
        if ours is not None:
            ours.make_way(on=on)
        return ours

    def _close_once_lost(self, shard: int, ours: Coordinator) -> None:
        """Serve a departing shard until another node has claimed it; then drop its state."""
        wait_s = LOOK_S
        while ours.confirm_status() not in LOST:  # a shard without requests does not learn it
            if shard in self._had or self._ending.wait(wait_s):
                return  # it is here again, or the node closes it
            wait_s = min(2 * wait_s, LOOK_MOST_S)
        with self._changing:
            if shard in self._had or self._here.get(shard) is not ours:
                return  # it is to be claimed again
            self._lost[shard] = ours.epoch
            del self._here[shard]
        ours.close()

    def _wait_until_lost(self, shard: int, stop: Stop) -> None:
        """Wait until a shard must go, or another has claimed it, and for as long as a session.

        A node that lost a shard may be late to learn it; one without requests learns it from the
        other nodes.
        """
        while not stop.wait(WATCH_S):
            ours = self._here.get(shard)
            if ours is None and self._claimed_elsewhere(shard):
                with self._changing:
                    self._empty.discard(shard)  # another's late claim has made its log
            if ours is None and shard not in self._empty | self._loading:
                return  # its first claim failed, and may have been written all the same
            if ours is not None and self._claimed_elsewhere(shard) > ours.epoch:
                ours.confirm_status()
            if ours is not None and ours.status in LOST:
                stop.wait(self._config.lease.ttl_ms / 1000)
                return

    def _has_log(self, shard: int) -> bool:
        path = shard_at(self._root, shard)
        return files_at(path).is_folder(log_folder(f"{path}/log"))

    def _claim_asked(self, shard: int) -> None:
        """Claim a shard whose first request came; it may be another's by the time that is done."""
        if self._try_to_claim(shard):
            self._let_go(shard)
        else:
            with self._changing:
                self._empty.discard(shard)

    def _try_to_have(self, shard: int) -> bool:
        """Claim a shard that has a log, note one that has none; False where neither is possible."""
        try:
            has_log = self._claimed_elsewhere(shard) > 0 or self._has_log(shard)
        except OSError as error:
            logger.warning("it is not known whether shard %d has a log: %s", shard, error)
            return False
        if has_log:
            return self._try_to_claim(shard)
        with self._changing:
            if self._must_go(shard):
                return False
            self._empty.add(shard)
        self._tell()
        return True

    def _try_to_claim(self, shard: int) -> bool:
        """Claim a shard; False where its store does not let us, which may pass."""
        try:
            self.claim(shard)
        except (LogError, OSError) as error:
            logger.warning("shard %d cannot be claimed: %s", shard, error)
            return False
        return True

    def _must_go(self, shard: int) -> bool:
        """Whether a shard is not, or no longer, to be here: others may have it already."""
        stop = self._had.get(shard)
        return stop is None or stop.is_set() or self._ending.is_set()

    def claim(self, shard: int) -> None:
        """Claim a shard's log and serve its groups; one that is served stays.

        One that had to go while its log was read is not claimed, for its next owner may have it.
        """
        with self._changing:
            ours = self._here.get(shard)
            if shard in self._loading or (ours is not None and ours.status not in LOST):
                return
            self._loading.add(shard)
            self._here.pop(shard, None)
        try:
            with self._order.turn(shard):
                opened = self._open(shard)
            if opened is not None and not self._take_in(shard, opened):
                opened.close()
        finally:
            with self._changing:
                self._claimed.pop(shard, None)
                self._loading.discard(shard)
        if ours is not None:
            ours.close()

    def _take_in(self, shard: int, opened: Coordinator) -> bool:
        """Serve a shard from now on; False once the node has closed all that were here."""
        with self._changing:
            if self._ending.is_set():
                return False
            self._here[shard] = opened
            self._empty.discard(shard)
        self._log_served(shard, opened.epoch)
        return True

    def _log_served(self, shard: int, epoch: int) -> None:
        """Say how long a shard took to come here."""
        now_ms = monotonic_ms()
        took_ms = now_ms - self._given_ms.pop(shard, now_ms)
        logger.debug("serves shard %d by claim %d, given %d ms before", shard, epoch, took_ms)

    def close(self) -> None:
        """Serve no shard any longer, nor one that is loaded now; the node is ending."""
        for coordinator in self.list_open():
            coordinator.close()

    def _open(self, shard: int) -> Coordinator | None:
        """Read the log while another still answers, claim it, and load what came meanwhile."""
        if self._must_go(shard):
            return None
        log = self._looked_at(shard)
        if log is None:
            log = LogAhead.open(shard_at(self._root, shard), self._config.log)
        self.read(log)
        if self._must_go(shard):
            log.close()
            return None
        logger.debug("has read what shard %d has before its claim", shard)
        epoch = log.claim(self.owner, self.address, wall_ms())
        with self._changing:
            self._claimed[shard] = epoch
            self._lost.pop(shard, None)
        self._metrics.claimed()
        logger.debug("has claimed shard %d, by claim %d", shard, epoch)
        self._start(self._tell, f"muster-claimed-{shard}")
        return self.load(log)

    def read(self, log: LogAhead) -> None:
        """Read what a shard's log has before it is claimed."""
        log.read_ahead()

    def load(self, log: LogAhead) -> Coordinator:
        """Serve the groups of a log that is claimed."""
        engine = None if self._make_engine is None else self._make_engine()
        opened = Coordinator.open(
            None,
            engine=engine,
            config=config_of_part(self._config),
            topics=self._catalog,
            log=log,
            metrics=self._metrics,
        )
        if engine is not None:
            opened.when_closed(engine.close)
        return opened


def refuse_elsewhere(group_id: str, what: str) -> GroupError:
    """Return the error of a request for a group that another node has."""
    return GroupError(
        ErrorCode.NOT_COORDINATOR,
        f"Another node has {what}, and group {group_id} with it: find the coordinator.",
    )

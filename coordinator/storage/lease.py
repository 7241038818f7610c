"""The lease file: when a stand-by may claim a store. It decides when, never whether it is safe.

The holder renews `<store>/_lease.json` again and again; a stand-by claims the log once that file is
gone, has expired, or has not changed for as long as a lease lives. Clocks that are wrong, a lease
that is forced or deleted, two stand-bys at once: all of that costs a needless take-over at worst,
because the claim in the log alone fences (docs/design/log_format.md#fencing).
"""

from __future__ import annotations

import errno
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from coordinator.clock import Clock, monotonic_ms
from coordinator.config import LeaseConfig
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.files import Files, SwapLostError, hold_to_swap
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import root_of
from coordinator.storage.tables.table_io import BusyError

POLL_MS = 200
GIVEN_BACK_MS = 0
"""When a lease expired that was given back where nothing is removed on a condition."""
LOOKED_AT = 2
"""For how many renewals a lease is looked at whose date has passed when it is first seen."""
TAKES = 20
"""How often a lease is tried for that others write meanwhile."""
logger = logging.getLogger("muster.coordinator")


class Takeover(StrEnum):
    """What to do about the lease of another: wait until it ends, refuse, or take it by force."""

    WAIT = "wait"
    REFUSE = "refuse"
    FORCE = "force"


class Holder(msgspec.Struct, frozen=True):
    """What the lease file says.

    Attributes
    ----------
    token
        Of this very lease: two coordinators may call themselves the same.
    late
        The addresses of nodes of which the root's owner has not heard for a while.
    """

    owner: str
    coordinator_epoch: int
    address: str
    expires_ms: int
    token: str
    late: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = f" at {self.address}" if self.address else ""
        return (
            f"{self.owner}{at} with coordinator epoch {self.coordinator_epoch}, "
            f"its lease runs until {_show_time(self.expires_ms)}"
        )


def _show_time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970, which is not a date: its file is damaged"


def lease_at(root: str) -> str:
    """Return where the lease file of a store is."""
    return f"{root}/_lease.json"


def read_holder(disk: Files, root: str) -> Holder | None:
    """Return who had the lease last; None where the file cannot be read, or says nothing of one."""
    try:
        return msgspec.json.decode(disk.read(lease_at(root)), type=Holder)
    except (OSError, ValueError, RecursionError):
        return None


class Lease:
    """One coordinator's side of the lease of a store.

    Parameters
    ----------
    owner, address
        Who we are and where we answer, for those that find the store taken.
    clock
        Milliseconds since 1970.
    sleep
        Waits so many seconds; what it raises ends `wait`.
    steady
        Milliseconds by a clock that is never set.

    Attributes
    ----------
    seen
        Whose lease we saw last while we waited.
    late
        As `Holder` has it: those who stand by read it with the next renewal.
    """

    def __init__(
        self,
        store: str,
        owner: str,
        address: str,
        config: LeaseConfig,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        disk: Files | None = None,
        steady: Clock = monotonic_ms,
    ) -> None:
        root = root_of(store)
        self._store = root
        self._path = lease_at(root)
        self._lock = f"{root}/_locks/_lease"
        self._owner, self._address = owner, address
        self._config = config
        self._clock, self._sleep = clock, sleep
        self._steady = steady
        self._disk = disk or filesystem_of(root)
        self._token = uuid.uuid4().hex
        self._epoch = 0
        self._must_be = root
        """A folder of the store that was seen, or will be."""
        self._has_waited = False
        self.seen: Holder | None = None
        self.late: tuple[str, ...] = ()
        self._looked_ms = 0
        self._recounted = False
        """Whether that was done since it changed."""
        self._ends_ms = 0
        """When that has ended, by the steady clock, if it does not change before."""
        self._tag: str | None = None
        """Of the file as we wrote it last. Without locks it is replaced only while it has this tag,
        so a renewal is one request."""
        self._poll_ms = max(POLL_MS, int(self._disk.poll_s * 500))

    def holder(self) -> Holder | None:
        """Return who has the lease, None if it is free."""
        held, _ = self._read()
        return None if held is None or held.expires_ms <= self._clock() else held

    def wait(self, takeover: Takeover = Takeover.WAIT, patience: Patience | None = None) -> None:
        """Return once we hold the lease, and may claim the log.

        Parameters
        ----------
        takeover
            Wait until it is free; refuse when it is not; or force it from its holder.
        patience
            Bears with a store that does not answer.

        Raises
        ------
        BusyError
            Another coordinator holds it, and takeover is REFUSE.
        OSError
            The lease cannot be read or written, and nothing bears with that.
        """
        first = None
        while True:
            try:
                if self._has_waited:
                    self._check_store()
                held = self._take(force=takeover == Takeover.FORCE)
            except OSError as error:
                if patience is None:
                    raise
                patience.failed(error)
                continue
            if held is None:
                return
            if patience is not None:
                patience.stands_by(held)
            first = first or held
            if takeover == Takeover.REFUSE and (held != first or held.expires_ms > self._clock()):
                raise BusyError(
                    f"{self._store} is held by {held}: "
                    f"wait for its end, stop it, or take over by force"
                )
            self._has_waited = True
            log = log_folder(f"{self._store}/log")
            if self._disk.has_locks and self._disk.is_folder(log):
                self._must_be = log
            self._sleep(self._next_look_ms() / 1000)

    def _next_look_ms(self) -> int:
        """Return when to look at a lease again: no later than when it may have ended."""
        left_ms = self._ends_ms - self._steady() if self.seen is not None else self._poll_ms
        return min(self._poll_ms, max(POLL_MS, left_ms))

    @property
    def is_late(self) -> bool:
        """Whether two renewals of the lease that we wait for are missing: it may end soon."""
        left_ms = self._ends_ms - self._steady()
        return self.seen is not None and left_ms < self._config.ttl_ms - 2 * self._config.renew_ms

    def publish_epoch(self, epoch: int) -> None:
        """Tell the others the coordinator epoch of our claim: by one request, while it is ours."""
        self._epoch = epoch
        if not self.renew(self._clock()):
            self.retake()

    def renew(self, now_ms: int) -> bool:
        """Renew the lease; False when another coordinator has it, or the file is gone.

        Raises
        ------
        OSError
            The store is gone, or its disk fails.
        """
        self._check_store()
        with self._hold_lock():
            if self._tag is not None and not self._disk.has_locks:
                try:
                    self._write(now_ms, self._tag)
                except SwapLostError:
                    pass  # an answer of ours may have been lost: look
                else:
                    return True
            held, tag = self._read()
            if held is None or held.token != self._token:
                return False
            try:
                self._write(now_ms, tag)
            except SwapLostError:
                return False
        return True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease beside other work, such as to open and claim a log that is long.

        Otherwise a stand-by takes it over meanwhile, and fences us as soon as we serve. Nothing
        else may be asked of the lease until this ends.
        """
        done = threading.Event()
        thread = threading.Thread(
            target=self._renew_until, args=(done,), name="muster-lease-kept", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _renew_until(self, done: threading.Event) -> None:
        """Renew the lease again and again; whose it is now does not matter, the log will say."""
        while not done.wait(self._config.renew_ms / 1000):
            try:
                if not self.renew(self._clock()):
                    return
            except OSError as error:
                logger.warning("the lease could not be renewed, retrying: %s", error)

    def retake(self) -> bool:
        """Take the lease again if it is free; only while the log is seen to be ours.

        The file may be gone because it was removed, or because a successor came and went.
        """
        return self._take(force=False) is None

    def release(self) -> None:
        """Give the lease back, so that a stand-by claims at once; where that fails it expires."""
        try:
            self._check_store()
            with self._hold_lock():
                held, tag = self._read()
                if held is None or held.token != self._token:
                    return
                if self._disk.has_locks:
                    self._disk.remove(self._path)
                else:  # nothing is removed on a condition, so it expires instead
                    self._write(GIVEN_BACK_MS - self._config.ttl_ms, tag)
        except OSError as error:
            logger.warning("the lease could not be released, it will expire: %s", error)

    def _take(self, *, force: bool) -> Holder | None:
        """Write our name into the file, or return the current holder."""
        with self._hold_lock():
            for _ in range(TAKES):
                held, tag = self._read()
                free = held is None or held.token == self._token or force
                if not (free or (held is not None and self._has_ended(held))):
                    return held
                try:
                    self._write(self._clock(), tag)
                except SwapLostError:
                    continue  # another was faster: see who it is
                return None
        raise OSError(
            errno.EAGAIN,
            "others keep writing the lease, or the store refuses its own tags (ETag): a lease "
            "needs a store whose tags are strong and stable",
            self._path,
        )

    def _has_ended(self, held: Holder) -> bool:
        """Whether it expired: by its date when we first look, within a ttl by the steady clock.

        The date is of another machine's clock, so a holder is always given the time to renew it
        under our eyes. One that writes it while we look is alive, even if a clock is set: it has
        ended once it does not change for a ttl, or is given back.
        If we could not look for that long, because the store did not answer, its holder could not
        renew it either: we start counting again, but only once, or a slow store would never end it.
        """
        now_ms, ttl_ms = self._steady(), self._config.ttl_ms
        was_blind = now_ms - self._looked_ms > ttl_ms and not self._recounted
        self._looked_ms = now_ms
        if held.expires_ms <= GIVEN_BACK_MS:
            return True
        if self.seen is None:
            left_ms = max(LOOKED_AT * self._config.renew_ms, held.expires_ms - self._clock())
            self.seen, self._ends_ms = held, now_ms + min(ttl_ms, left_ms)
        elif held != self.seen or was_blind:
            self._recounted = held == self.seen
            self.seen, self._ends_ms = held, now_ms + ttl_ms
        return now_ms >= self._ends_ms

    def _check_store(self) -> None:
        """Refuse a store that is gone, or whose disk is: the lock would create it again."""
        if self._disk.has_locks and not self._disk.is_folder(self._must_be):
            raise FileNotFoundError(errno.ENOENT, "the store is gone", self._store)

    def _hold_lock(self) -> AbstractContextManager[bool]:
        """Between reading and writing: two stand-bys must not both find it free.

        A process that was stopped in here keeps the lock; the others go on after a while, and the
        log will fence a late one.
        """
        return hold_to_swap(self._disk, self._lock, self._config.ttl_ms / 1000)

    def _read(self) -> tuple[Holder | None, str | None]:
        """Return what the file says, and its tag; one that says nothing of a lease holds nothing.

        Without a file the tag is None.
        """
        try:
            content, tag = self._disk.read_tagged(self._path)
        except FileNotFoundError:
            return None, None
        try:
            return msgspec.json.decode(content, type=Holder), tag
        except (ValueError, RecursionError) as error:  # msgspec's errors among them
            logger.warning("ignoring invalid lease file %s: %s", self._path, error)
            return None, tag

    def _write(self, now_ms: int, tag: str | None) -> None:
        """Write our name into the file, if it still has the tag.

        Raises
        ------
        SwapLostError
            Another has written it.
        """
        until = now_ms + self._config.ttl_ms
        held = Holder(self._owner, self._epoch, self._address, until, self._token, self.late)
        content = msgspec.json.format(msgspec.json.encode(held)) + b"\n"
        self._tag = None
        self._tag = self._disk.swap(self._path, content, tag)

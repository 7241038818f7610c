"""A worker that keeps the rules has stopped when its coordinator thinks so, whatever is delayed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.push.lease import WorkerLease

WAITS = st.integers(0, 40)


class Model:
    """The worker's side, as docs/reference/push.md has it; its clock began at another time."""

    def __init__(self, now_ms):
        self.answered_ms, self.until_ms = now_ms, None

    def asked(self, now_ms, session_ms):
        """Whether it answers; else its session is over."""
        if self.until_ms is not None and now_ms > self.until_ms:
            return False
        self.until_ms = self.answered_ms + session_ms
        return True


@given(
    st.integers(0, 40),
    st.lists(st.tuples(WAITS, WAITS, WAITS, WAITS, st.integers(1, 90)), min_size=1, max_size=8),
    st.booleans(),
    st.integers(-1_000, 1_000),
    st.integers(0, 300),
)
def test_who_is_lost_has_stopped_in_time(way_back, requests, arrives, skew, end):
    """Each request: (pause, way there, time to answer, way back, session timeout); one is lost."""
    now, worker = 0, Model(0 + skew)
    now += way_back
    lease = WorkerLease(0)
    lease.answered(now)
    for number, (pause, there, takes, back, longest_ms) in enumerate(requests):
        now += pause
        session_ms = lease.session_ms(longest_ms, end)
        if session_ms <= 0:
            break
        by = lease.ask(session_ms)
        last = number == len(requests) - 1
        answer = arrives or not last
        if now >= by or not answer:
            break
        if not worker.asked(now + there + skew, session_ms):
            break
        worker.answered_ms = now + there + takes + skew
        now += there + takes + back
        if last or now > by:
            break  # the answer is lost, or comes too late
        lease.answered(now)
    if worker.until_ms is not None:
        assert worker.until_ms - skew <= min(lease.stops_by_ms, end)

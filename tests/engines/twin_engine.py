"""An engine that computes each target twice: from the last plan where it can, and from nothing."""

from __future__ import annotations

from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.engines.engine import LocalEngine, compute_target


class TwinEngine(LocalEngine):
    """Checks that both ways lead to the same records."""

    def compute(self, basis: Basis) -> TargetCandidate:
        """Return the target, and compare it with that from nothing."""
        expected = compute_target(basis)
        got = super().compute(basis)
        assert got == expected, (got, expected)
        return got

    def compute_now(self, basis: Basis) -> TargetCandidate | None:
        """Return the same where few members changed."""
        got = super().compute_now(basis)
        assert got is None or got == compute_target(basis)
        return got

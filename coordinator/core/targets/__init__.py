"""Target assignments: how one is computed, and installed."""

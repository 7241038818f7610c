"""Groups of the classic protocol: join, sync, rebalance."""

"""The same simulation with members of classic groups: coordinators die in each phase of a rebalance."""

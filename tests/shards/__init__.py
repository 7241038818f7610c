"""Stores of shards, and the nodes that share one."""

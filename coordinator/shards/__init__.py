"""Nodes that share a store of shards: each coordinates the groups of the shards that it has."""

"""Nodes of a store of shards fail, and the others go on with their groups."""

"""What `make bench` measures of nodes that share a store of shards."""

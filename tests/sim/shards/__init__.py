"""The simulation of nodes that share a store of shards: the product's threads, on simulated time."""

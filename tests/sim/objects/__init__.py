"""The simulation on a store in an object store."""

"""The cleaner of a replica's log: of each key the last record stays, as in compacted topics."""

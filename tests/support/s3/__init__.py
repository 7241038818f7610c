"""An S3 server for tests, in a process of its own, with the faults of networks."""

"""Groups of the consumer protocol: a heartbeat, in its three steps, and members that go."""

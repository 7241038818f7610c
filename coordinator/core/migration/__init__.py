"""Groups on their way from one protocol to the other, and groups that have members of both."""

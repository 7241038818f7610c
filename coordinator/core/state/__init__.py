"""The state and the records that change it: what a log says, in memory."""

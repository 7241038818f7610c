"""Traces of rebalances, and metrics, for an OpenTelemetry collector."""

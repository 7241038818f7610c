"""Serve /metrics, /healthz and /readyz over HTTP, and authorize their readers.

This room reports on a coordinator and must never change one. Kafka's protocol is in `wire/`.
"""

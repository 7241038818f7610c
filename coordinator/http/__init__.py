"""/metrics, /healthz and /readyz over HTTP, and who may read them.

It reports on a coordinator and never changes one; Kafka's protocol is in `wire/`.
"""

"""/metrics, /healthz and /readyz over HTTP, and who may read them."""

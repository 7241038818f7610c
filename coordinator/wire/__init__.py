"""The coordinator speaks the Kafka wire protocol, so that unmodified clients are members.

    bytes ─ connection ─▶ codec ─▶ requests, cluster ─▶ events ─▶ the coordinator
    bytes ◀ connection ── codec ◀─ requests, cluster ◀─ answers ◀──────┘

`connection` is one client's conversation without any I/O; `server` moves its bytes.
"""

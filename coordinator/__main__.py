"""The command `muster`, also as `python -m coordinator`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command, with delta-rs's logging off but for errors: we say ourselves what failed."""
    os.environ.setdefault("RUST_LOG", "error")  # read when deltalake is imported
    from coordinator.cli import main  # noqa: PLC0415 - as said

    main.main()


if __name__ == "__main__":
    main()

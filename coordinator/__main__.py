"""The command `muster`, also as `python -m muster`."""

from __future__ import annotations

import os
import sys

FOLLOWING = ("web", "serve")
"""Commands that follow a log for as long as they run."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> None:
    """Run the command, with delta-rs's logging off but for errors: we say ourselves what failed."""
    if sys.argv[1:] == ["--version"]:  # nothing of the command's is needed for it
        from importlib.metadata import version  # noqa: PLC0415 - other commands import it late

        print(f"muster {version('muster')}")  # noqa: T201
        return
    os.environ.setdefault("RUST_LOG", "error")  # read when deltalake is imported
    if sys.argv[1:2] and sys.argv[1] in FOLLOWING and has_jemalloc():
        # Columns that grow with each commit leave holes. Arrow's default pool, mimalloc, keeps
        # them: 20 KB for each rebalance that pages show. Read when pyarrow is imported.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    try:
        spare_pandas()
        from coordinator.cli import main  # noqa: PLC0415 - as above

        main.main()
    except KeyboardInterrupt:  # commands end so by themselves, their imports do not
        raise SystemExit(INTERRUPTED) from None


def spare_pandas() -> None:
    """Let pyarrow see no pandas when it first looks, as where pandas is not installed.

    It looks, and imports what it finds, when it makes its first array of a list: a third of a
    short command's time, for frames that no command has. A frame that is asked for is still made.
    """
    import pyarrow as pa  # noqa: PLC0415 - its pool is chosen above

    sys.meta_path.insert(0, NoPandas)
    pa.array([])
    sys.meta_path.remove(NoPandas)


class NoPandas:
    """A finder of modules that finds no pandas, and leaves all others to the next finder."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Refuse pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def has_jemalloc() -> bool:
    """Whether Arrow has jemalloc here: not on every system, and not for pages of any size."""
    return sys.platform == "linux" and os.uname().machine == "x86_64"


if __name__ == "__main__":
    main()

"""Print where the time of one join goes."""

from __future__ import annotations

import argparse

from benchmarks.measure import sort_ms
from benchmarks.one_join import profile
from benchmarks.store import temporary_store


def main() -> None:
    """Print the tables, and the sort that all times are compared with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--joins", type=int, default=20)
    asked = parser.parse_args()
    with temporary_store() as store:
        for line in profile(store, asked.members, asked.joins):
            print(line)
    print(f"\na sort of ten million numbers: {sort_ms():.0f} ms of CPU")


if __name__ == "__main__":
    main()

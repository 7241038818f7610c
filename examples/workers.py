"""Embed the assignors: shards divided among workers that come and go.

    python examples/workers.py

Nothing else of Muster is needed for this: no service, no Spark, no disk. Your program knows who is
there; the assignor says who works on what, and moves as little as it can.
"""

from __future__ import annotations

from muster import GroupSpec, PartitionRanges, get_assignor, quality

SHARDS = {"images": 12, "videos": 5}
GPU = ["images", "videos"]
CPU = ["images"]


def divide(workers: dict[str, list[str]], before: PartitionRanges | None) -> PartitionRanges:
    """Divide all shards among the workers, starting from who had what before."""
    owned = before.to_dict(lists=False) if before is not None else {}
    members = {
        name: {"subscribed": kinds, "owned": owned.get(name, {})} for name, kinds in workers.items()
    }
    group = GroupSpec.from_dict({"topics": SHARDS, "members": members})
    ranges = get_assignor("sticky", imbalance=1).assign(group)
    report = quality.report(group, ranges)
    print(f"{', '.join(workers)}: {report.moved} moved, {report.orphans} had no owner")
    return ranges


def main() -> None:
    """Two workers start, a third joins, the first leaves."""
    workers = {"w1": GPU, "w2": CPU}
    ranges = divide(workers, None)
    workers["w3"] = GPU
    ranges = divide(workers, ranges)
    del workers["w1"]
    ranges = divide(workers, ranges)
    print(ranges.to_pandas().to_string(index=False))


if __name__ == "__main__":
    main()

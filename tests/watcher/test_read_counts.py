"""How much was read: counted by partition, in metrics and for people, once it is in the store."""

import base64
import json

import pytest

from coordinator.errors import GroupError
from coordinator.watcher.record_batches import KafkaRecord
from coordinator.watcher.watch import watch

from .recorded import FOLDER

SHARE, FAR = 10, 9_999


def test_what_is_read_is_counted(tmp_path):
    odd = [(SHARE, b"\0\1"), (FAR, b"\0\1"), (2, b"\0\x09g")]  # the last one is cut
    lines = [json.loads(line) for line in (FOLDER / "wide-00.jsonl").read_text().splitlines()]
    known = sum(len(line.get("records", ())) for line in lines)
    last = max(row[0] for line in lines for row in line.get("records", ()))
    more = [
        [last + 1 + n, 9_000_000, 900_000 + n, base64.b64encode(key).decode(), None]
        for n, key in enumerate(type_.to_bytes(2) + rest for type_, rest in odd)
    ]
    dump = tmp_path / "dump.jsonl"
    dump.write_text("".join(json.dumps(line) + "\n" for line in (*lines, {"records": more})))
    with watch(dump, tmp_path / "store") as watched:
        watched.wait(60)
        counts, value = watched.store.counts, watched.coordinator.metrics.registry.get_sample_value
        assert dict(counts.records) == {0: known + 3}
        assert counts.last_ms == 9_000_000
        assert value("watched_records_total", {"partition": "0"}) == known + 3
        assert value("watched_records_passed_over_total", {"type": str(SHARE)}) == 1
        assert value("watched_records_passed_over_total", {"type": "other"}) == 1
        assert value("watched_records_undecodable_total") == 1
        counts.note_lag(7, 12)
        assert value("watched_lag", {"partition": "7"}) == 12
    with watch(dump, tmp_path / "store") as again:
        again.wait(60)
        assert not again.store.counts.records, "nothing is read twice"


def test_what_is_not_written_is_not_counted(tmp_path):
    with watch(FOLDER / "wide-00.jsonl", tmp_path / "store") as watched:
        watched.wait(60)
        store = watched.store
        before = dict(store.counts.records)
        store.coordinator.close()
        with pytest.raises(GroupError):
            store.load(3, [KafkaRecord(0, 1, b"\0\1", None)], 5)
        assert dict(store.counts.records) == before

"""What a table's writer knows of it: all of a version, or nothing."""

import errno

import pytest

from coordinator.config import LogConfig
from coordinator.core.state.records import OffsetCommitted
from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.record_log import CommitFailed, LogError
from coordinator.storage.tables.commit_writer import write_commit
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.newest_version import open_newest
from coordinator.storage.tables.recovery import commit_file
from coordinator.verify import verify


class Trusting(Filesystem):
    """A disk as an object store: what was seen there a moment ago is not looked at again."""

    trust_s, lands_late = 3_600.0, True
    fails_at = None

    def read(self, path):
        """Fail once, where the test says."""
        if self.fails_at is not None and path.endswith(self.fails_at):
            self.fails_at = None
            raise OSError(errno.EIO, "not answered", path)
        return super().read(path)


def offsets(store):
    return [record.offset for batch in read_log(store) for record in batch.records
            if isinstance(record, OffsetCommitted)]  # fmt: skip


@pytest.mark.parametrize("looks_again", [False, True])
def test_a_version_whose_entry_cannot_be_read_is_not_half_known(tmp_path, looks_again):
    """It would be followed by an entry that names the digest of another one."""
    disk, silent = Trusting(), [False]

    def write(where, path, commit):
        """Put an entry; if the store is silent, the first one lands all the same."""
        landed = disk.exists(commit_file(path, commit.version))
        if not landed:
            write_commit(where, path, commit)
        if silent[0]:
            raise OSError(errno.ETIMEDOUT, "not answered", path)
        if landed:
            raise FileExistsError(path)

    # A ReadTable has read the entry itself; by delta-rs it is read once more.
    log = DeltaLog(tmp_path, LogConfig(), disk, write, open_table=open_newest)
    log.claim("one", "", 1)
    log.append([OffsetCommitted("g", "t", "id", 0, 1)], 1)
    silent[0] = True
    with pytest.raises(CommitFailed):
        log.append([OffsetCommitted("g", "t", "id", 0, 2)], 1)
    silent[0], disk.fails_at = False, f"{log._table.version + 1:020}.json"
    with pytest.raises((OSError, LogError)):
        list(log.replay())
    if looks_again:
        list(log.replay())
    log.append([OffsetCommitted("g", "t", "id", 0, 3)], 1)
    log.close()
    verify(tmp_path)
    assert offsets(tmp_path) == [1, 2, 3]

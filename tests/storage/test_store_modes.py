"""Who may read a store: its owner alone, or whom `log.folder_mode` lets in, whatever the umask is."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from contextlib import contextmanager

import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.backup import backup, restore
from coordinator.config import Config, ConfigError, LogConfig, folder_mode, parse
from coordinator.history.frames import frame
from coordinator.storage import compaction
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.inbox import Compact, Inbox
from coordinator.storage.state_loader import write_snapshot
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.verify import verify
from tests.support.lives import life
from tests.support.longer import EVERY
from tests.support.members import AT_ONCE, Members, wait_for
from tests.support.table_engine import write_rows

BUSY = LogConfig(reopen_commits=2, pack_commits=3, files_kept_ms=0)


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
        assert os.umask(mask) == mask, "the process's umask has changed"
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def wrong(store, folder_mode):
    """Return what has another mode, of everything in a store."""
    return {
        str(path): f"{mode(path):o}"
        for path in [store, *store.rglob("*")]
        if mode(path) != (folder_mode if path.is_dir() else folder_mode & 0o666)
    }


def chmod_all(store, folder_mode):
    for path in [*store.rglob("*"), store]:
        path.chmod(folder_mode if path.is_dir() else folder_mode & 0o666)


def config(folder_mode, **log):
    return Config(kafka=AT_ONCE, log=LogConfig(folder_mode=folder_mode, **log))


def lived(store, settings):
    """Live with commits, a checkpoint, packing, a snapshot, a request, and one set aside."""
    with Coordinator.open(store, topics={"a": 6}, config=settings) as coordinator:
        members = Members(coordinator)
        members.join("m1")
        members.settle()
        inbox = Inbox(store)
        inbox.put(Compact("compact-1"))
        wait_for(lambda: not inbox.waiting())
        (store / "inbox" / "x.json").mkdir()
        wait_for(lambda: list(store.glob("_set_aside/*.reason")))
        inbox.put(Compact("compact-2"))
        yield coordinator


@pytest.mark.parametrize("mask", [0, 0o022, 0o077][: 3 if EVERY else 1])
@pytest.mark.parametrize("text", ["0700", "0750", "0775"])
def test_everything_in_a_store_has_its_mode(tmp_path, mask, text):
    store, wanted = tmp_path / "store", int(text, 8)
    with umask(mask):
        for _ in lived(store, config(text)):
            (aside,) = store.glob("_set_aside/inbox-*.json")
            aside.rmdir()  # what others made stays theirs
            assert wrong(store, wanted) == {}
        names = {path.name for path in store.rglob("*")}
        assert {"_lease", "log", "snapshots", "inbox", "_set_aside", "_last_checkpoint"} <= names
        compaction.compact(store, Config(), 1)  # by whom the settings are not known
        assert wrong(store, wanted) == {}
        backup(store, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "new")
        assert wrong(tmp_path / "backup", wanted) == wrong(tmp_path / "new", wanted) == {}


def test_packed_files_and_targets_have_it_too(tmp_path):
    store = tmp_path / "store"
    with umask(0o022):
        log = DeltaLog(store, BUSY)
        log.claim("me", "", 1)
        for epoch in range(1, 9):
            log.append(life(epoch), epoch)
            if log.is_maintenance_due():
                log.maintain()
        write_snapshot(log, 9)
        names = [path.name for path in store.rglob("*")]
        assert any("checkpoint.parquet" in name for name in names)
        assert wrong(store, 0o700) == {}
        rows = {"member_id": ["m"], "topic_id": ["i"], "topic": ["a"]}
        rows |= {name: pa.array([1], pa.int32()) for name in ("first_partition", "partition_count")}
        write_rows(store, "g", 99, "orphan", pa.table(rows))
        assert wrong(store, 0o700) == {}
        assert (
            compaction.compact(store, Config(log=BUSY), 4 * 10**12).runs_dropped == 1
        )  # by delta-rs
        assert wrong(store, 0o700) == {}


def test_a_folder_that_was_there_stays_as_it_is(tmp_path, caplog):
    """It is not ours; what is in it is: no one else gets in there."""
    tmp_path.chmod(0o755)
    with umask(0o022), Coordinator.open(tmp_path, topics={"a": 1}):
        tmp_path.chmod(0o700)
        assert wrong(tmp_path, 0o700) == {}
    assert caplog.messages == []


def test_parents_of_a_store_are_not_closed(tmp_path):
    store = tmp_path / "srv" / "muster" / "store"
    with umask(0o022), Coordinator.open(store):
        assert [mode(path) for path in (store, store.parent)] == [0o700, 0o755]


def test_the_group_s_bit_of_a_folder_is_kept(tmp_path):
    """So what is made in it belongs to its group."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o2750)
    with umask(0o077), Coordinator.open(tmp_path / "store", config=config("0750")):
        assert mode(tmp_path / "store" / "log" / "_delta_log") == 0o2750


@pytest.mark.parametrize(
    ("found", "folder_mode", "said"),
    [
        (0o755, "0700", "has mode 0755, log.folder_mode is 0700: to change the store, chmod -R u=rwX,g=,o= "),
        (0o777, "0755", "has mode 0777, log.folder_mode is 0755: to change the store, chmod -R u=rwX,g=rX,o=rX "),
        (0o700, "0770", "has mode 0700, log.folder_mode is 0770: to change the store, chmod -R u=rwX,g=rwX,o= "),
    ],
)  # fmt: skip
def test_a_store_that_is_there_keeps_its_mode_and_is_named(
    tmp_path, caplog, found, folder_mode, said
):
    store = tmp_path / "store"
    with umask(0o022):
        Coordinator.open(store, topics={"a": 1}).close()
        assert caplog.messages == []
        chmod_all(store, found)
        with Coordinator.open(store, topics={"a": 2}, config=config(folder_mode)):
            (line,) = caplog.messages
            assert line == f"{store} {said}{store}"
            assert wrong(store, found) == {} or found == 0o777
            assert [p for p in store.rglob("*") if p.is_file() and mode(p) & 0o111] == []
        newest = max(store.glob("log/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        assert mode(newest) == found & 0o664  # only owner and group ever write
        caplog.clear()
        subprocess.run(line.rpartition(", ")[2].split(), check=True)
        with Coordinator.open(store, topics={"a": 3}, config=config(folder_mode)):
            assert wrong(store, int(folder_mode, 8)) == {}
    assert caplog.messages == []


def test_reading_changes_no_mode(tmp_path):
    """A root that looks at a store of another mode must not lock anybody out."""
    store = tmp_path / "store"
    Coordinator.open(store, topics={"a": 1}, config=config("0750")).close()
    with umask(0o077):
        frame(store, "groups")
        verify(store)
    assert wrong(store, 0o750) == {}


def test_a_copy_of_a_closed_store_is_closed(tmp_path):
    """The mode of the store's own folder protects it; the copy has another folder."""
    store = tmp_path / "store"
    with umask(0o022):
        Coordinator.open(store, topics={"a": 1}).close()
        chmod_all(store, 0o755)
        store.chmod(0o700)
        backup(store, tmp_path / "backup")
    assert wrong(tmp_path / "backup", 0o700) == {}


def test_a_link_is_not_followed(tmp_path):
    """Who may write to the store could else open any file of its owner's to its group."""
    secret = tmp_path / "secret"
    secret.write_text("")
    secret.chmod(0o600)
    (tmp_path / "link").symlink_to(secret)
    Filesystem(0o770).permit(str(tmp_path / "link"))
    assert mode(secret) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_is_the_store_s_owner_s(tmp_path):
    store = tmp_path / "store"
    Coordinator.open(store, topics={"a": 1}).close()
    for path in [store, *store.rglob("*")]:
        os.chown(path, 4711, 4712)
    compaction.compact(store, Config(), 1)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in store.rglob("*")}
    assert set(owners.values()) == {(4711, 4712)}, owners


@pytest.mark.parametrize(
    "text", ["0999", "rwx", "", "0777", "0702", "0400", "0000", "7000", "0o700", "700"]
)
def test_invalid_and_world_writable_modes_are_refused(tmp_path, text):
    said = re.escape(f'log.folder_mode is {text!r}: give "0700" (its owner alone), "0750"')
    with pytest.raises(ConfigError, match=f"^my.toml: {said}"):
        parse(f'log.folder_mode = "{text}"', "my.toml")
    with pytest.raises(ConfigError, match=f"^{said}"):
        Coordinator.open(tmp_path / "store", config=config(text))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["448", "0o700", "true", "[7]", "0700"])
def test_a_mode_that_is_no_text_is_refused(value):
    with pytest.raises(ConfigError, match=r"^my.toml: .*(Expected `str`|not TOML)"):
        parse(f"log.folder_mode = {value}", "my.toml")
    with pytest.raises(ConfigError, match=r"log\.folder_mode is 448: give"):
        folder_mode(LogConfig(folder_mode=448))

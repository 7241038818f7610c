"""Files of an object store: the same calls as on a disk, and puts on a condition."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from coordinator import Coordinator
from coordinator.config import ConfigError
from coordinator.storage.tables.files import StoreRefusedError, SwapLostError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.object_files import ObjectFiles
from coordinator.storage.tables.store_files import files_at, root_of
from tests.support.s3.client import SECRET

THREADS, RACES = 8, 20


@pytest.fixture(params=["memory", "s3"])
def place(request):
    """Return a root, and the calls on files below it."""
    if request.param == "memory":
        return "memory://m/store", ObjectFiles("memory://m", MemoryStore())
    root = request.getfixturevalue("s3").new_store()
    return root, files_at(root)


def test_the_calls_do_what_they_do_on_a_disk(place, tmp_path):
    def use(root, files):
        files.make_folder(root)
        files.make_folder(f"{root}/log")
        yield files.exists(f"{root}/log/a"), files.names(f"{root}/log"), files.names(f"{root}/no")
        files.create(f"{root}/log/b", b"1")
        files.replace(f"{root}/log/a", b"22", sync=True)
        files.replace(f"{root}/top", b"")
        yield files.names(f"{root}/log"), files.names_below(root), files.size(f"{root}/log/a")
        yield files.exists(f"{root}/log/a"), files.is_file(f"{root}/log/a"), files.is_folder(root)
        yield files.is_folder(f"{root}/no"), files.exists(f"{root}/lo"), files.read(f"{root}/top")
        files.move(f"{root}/log/a", f"{root}/aside/a b%20ü")
        yield files.read(f"{root}/aside/a b%20ü"), files.names(f"{root}/aside")
        files.sync(f"{root}/top")
        files.remove(f"{root}/log/b")
        files.remove(f"{root}/log/b")
        files.remove_all([f"{root}/top", f"{root}/never"])
        files.remove_all([])
        yield files.names_below(root)
        for call in (files.read, files.read_tagged, files.size):
            with pytest.raises(FileNotFoundError) as error:
                call(f"{root}/log/b")
            yield error.value.filename.removeprefix(root), error.value.errno
        with pytest.raises(FileNotFoundError):
            files.move(f"{root}/log/b", f"{root}/c")

    here = list(use(str(tmp_path / "store"), Filesystem()))
    assert list(use(*place)) == here


def test_a_data_file_is_the_same_bytes(place, tmp_path):
    root, files = place
    rows = pa.table({"position": list(range(100_000)), "text": ["x"] * 100_000})
    size = files.write_rows(f"{root}/part", rows)
    assert size == Filesystem().write_rows(str(tmp_path / "part"), rows)
    assert files.read(f"{root}/part") == (tmp_path / "part").read_bytes()
    assert pq.read_table(files.source(f"{root}/part")).equals(rows)


def test_an_object_is_created_once_and_swapped_by_its_tag(place):
    root, files = place
    files.create(f"{root}/a", b"1")
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a", b"2")
    with pytest.raises(SwapLostError):
        files.swap(f"{root}/a", b"2", None)
    content, tag = files.read_tagged(f"{root}/a")
    newer = files.swap(f"{root}/a", content + b"2", tag)
    with pytest.raises(SwapLostError):
        files.swap(f"{root}/a", b"3", tag)
    assert files.read_tagged(f"{root}/a") == (b"12", newer)
    files.remove(f"{root}/a")
    with pytest.raises(SwapLostError):
        files.swap(f"{root}/a", b"3", newer)
    assert not files.exists(f"{root}/a")
    assert files.swap(f"{root}/a", b"4", None)


def test_every_race_has_one_winner(place):
    root, files = place
    files.create(f"{root}/swapped", b"-1")
    gate, created, swapped = threading.Barrier(THREADS), [], []

    def contend(me):
        for race in range(RACES):
            _, tag = files.read_tagged(f"{root}/swapped")
            gate.wait()
            with suppress(FileExistsError):
                files.create(f"{root}/{race}", b"%d" % me)
                created.append((race, me))
            with suppress(SwapLostError):
                files.swap(f"{root}/swapped", b"%d %d" % (race, me), tag)
                swapped.append((race, me))
            gate.wait()

    threads = [threading.Thread(target=contend, args=[me]) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(race for race, _ in created) == sorted(race for race, _ in swapped)
    assert [race for race, _ in sorted(created)] == list(range(RACES))
    assert all(files.read(f"{root}/{race}") == b"%d" % me for race, me in created)


def test_a_request_that_is_sent_again_finds_its_own_object(s3):
    """Its answer was lost, so the store's client sent it again, and learned that one is there."""
    root = s3.new_store()
    files = files_at(root)
    s3.fault("lost", "/a", "PUT")
    files.create(f"{root}/a", b"ours")
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a", b"another's")
    _, tag = files.read_tagged(f"{root}/a")
    s3.fault("lost", "/a", "PUT")
    newer = files.swap(f"{root}/a", b"ours, newer", tag)
    assert files.read_tagged(f"{root}/a") == (b"ours, newer", newer)
    with pytest.raises(SwapLostError):
        files.swap(f"{root}/a", b"another's", tag)
    s3.fault("lost", "_probe", "PUT", times=1)
    files.check_conditions(root)


def test_a_store_that_passes_over_conditions_is_refused(s3):
    root = s3.new_store()
    files_at(root).check_conditions(root)
    assert files_at(root).names_below(root) == []
    s3.fault("deaf", "_probe", times=9)
    with pytest.raises(ConfigError, match="ignores If-None-Match and If-Match of a put: two"):
        files_at(root).check_conditions(root)


@pytest.mark.parametrize("kind", ["weak", "odd"])
def test_a_store_whose_tags_never_match_is_refused_in_words_of_its_own(s3, kind):
    """Not in those of a race that another writer won."""
    root = s3.new_store()
    s3.fault(kind, "_probe", times=99)
    with pytest.raises(ConfigError, match=r"refuses its own tags \(ETag\), such"):
        files_at(root).check_conditions(root)
    with pytest.raises(ConfigError, match="refuses its own tags"):
        Coordinator.open(root)
    assert files_at(root).names_below(root) == []


def test_a_store_without_tags_is_refused(s3):
    root = s3.new_store()
    s3.fault("tagless", "_probe", times=99)
    with pytest.raises(StoreRefusedError, match="gives its objects no tags"):
        files_at(root).check_conditions(root)
    with pytest.raises(ConfigError, match="gives its objects no tags"):
        Coordinator.open(root)


def test_a_refusal_of_ones_own_put_refuses_no_store(s3):
    root = s3.new_store()
    s3.faults([("lost", "_probe", "PUT", 1), ("412", "_probe", "PUT", 2)])
    files_at(root).check_conditions(root)


def test_errors_are_one_line_without_what_is_secret(s3):
    root = s3.new_store()
    s3.fault("403")
    with pytest.raises(PermissionError) as error:
        files_at(root).read(f"{root}/a")
    said = str(error.value).replace(" (SignatureDoesNotMatch)", "")
    assert said.startswith(f"{root}/a: 403 Forbidden: credentials are given by AWS_ACCESS_KEY_ID")
    s3.fault("503", times=9)
    with pytest.raises(OSError, match="503 Service Unavailable") as error:
        files_at(root).replace(f"{root}/a", b"")
    assert SECRET not in str(error.value)
    s3.heal()
    nowhere = "s3://nowhere/store/a"
    for put in (files_at(nowhere).create, files_at(nowhere).replace):
        with pytest.raises(StoreRefusedError, match="store/a: 404 Not Found: bucket or container"):
            put(nowhere, b"")


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("s3://b/x/", "s3://b/x"),
        ("s3a://b/x y", "s3://b/x y"),
        ("S3://b", "s3://b"),
        (Path("s3://b/x"), "s3://b/x"),
        ("gcs://b/x", "gs://b/x"),
        ("az://c/x", "az://c/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("file:///a/b%20c", "/a/b c"),
        (Path("file:///a/b"), "/a/b"),
        (Path("memory:/x"), "memory://x"),
        ("./dbfs:/x", os.path.abspath("dbfs:/x")),
        ("file://localhost/a", "/a"),
        ("/a/../b", "/b"),
        ("/a//b://c", "/a/b:/c"),
    ],
)
def test_a_store_has_one_root_however_it_is_named(name, root):
    assert root_of(name) == root
    assert root_of(root) == root


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ftp://host/x",
            "has an unknown scheme: use s3://, gs://, az://, abfss://, file:// or memory://",
        ),
        ("dbfs:/x", "has an unknown scheme: use s3://"),
        (Path("hdfs://host/x"), "the store hdfs:/host/x has an unknown scheme: use s3://"),
        ("file://host/x", "the store 'file://host/x' is not a plain file:///FOLDER: it has a host"),
        ("file:///x#1", "write %3F for ? and %23 for #"),
        ("s3://", "names no bucket: give s3://BUCKET/FOLDER"),
        ("s3:///me:SECRET@b/x", "names no bucket: give s3://BUCKET/FOLDER"),
        ("s3://me:SECRET@b/x", "the store s3://b/x is not a plain"),
        (Path("s3://me:SECRET@b/x"), "the store s3:/b/x is not a plain"),
        ("s3://me:SE/CRET@b/x", "the store s3://b/x is not a plain"),
        ("s3://me:SE?CRET@b/x", "the store s3:// is not a plain"),
        ("s3://b/x?sig=SECRET", "the store s3://b/x is not a plain"),
        ("s3://b?sig=SECRET", "the store s3://b is not a plain"),
        ("s3://b?sig=a@SECRET", "the store s3://b is not a plain"),
        ("s3://[b/x", "a bucket of more than ASCII letters, digits and . _ -"),
        ("s3://b\u2100/x", "a bucket of more than ASCII"),
        ("file://[me:SECRET@b/x", "the store 'file://b/x' is not a URL: its host or bucket has"),
        ("az://c/x#SECRET", "has a password, a query"),
        ("s3://b/../x", "a step (. or ..)"),
        ("s3://b//x", "an empty name"),
        ("s3://me:SECRET@b/x\ty?SECRET", "has a control character"),
        ("http://me:SECRET@host/x?y=SECRET", "the store http://host/x has an unknown scheme"),
    ],
)
def test_a_url_of_no_store_is_refused_and_its_secret_not_said(name, said):
    with pytest.raises(ConfigError) as error:
        root_of(name)
    assert said in str(error.value)
    assert not re.search("SE|CRET", str(error.value))


def test_an_answer_that_ends_in_its_middle_is_asked_for_again(s3):
    root = s3.new_store()
    files = files_at(root)
    files.create(f"{root}/a/b", b"12345")
    s3.fault("cut", method="GET", times=2)
    assert files.names_below(root) == ["a/b"]
    s3.fault("cut", method="GET", times=2)
    assert files.read(f"{root}/a/b") == b"12345"
    s3.fault("cut", method="GET", times=1)
    assert files.names(f"{root}/a") == ["b"]


def test_a_refusal_that_ends_in_its_middle_is_asked_for_again(s3):
    root = s3.new_store()
    files = files_at(root)
    files.create(f"{root}/a", b"1")
    s3.fault("cut", method="PUT", times=2)
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a", b"2")
    s3.fault("cut", method="PUT", times=1)
    files.check_conditions(root)
    s3.fault("cut", method="POST", times=2)
    files.remove_all([f"{root}/a", f"{root}/b"])
    assert not files.names(root)

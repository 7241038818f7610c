"""Tables named by a URL: read from a store that answers, and one line when none does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from assignors import SpecError
from coordinator.storage.tables.store_errors import short_reason
from coordinator.storage.tables.table_io import TableRef
from tests.conftest import ROOT
from tests.support.object_store import KEY
from tests.support.processes import running

SECRET = "secretsecret"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder that is a bucket, and the port of its store."""
    folder = tmp_path_factory.mktemp("bucket")
    command = [sys.executable, ROOT / "tests/support/object_store.py", folder]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        yield folder, int(process.stdout.readline())


@pytest.fixture
def bucket(served, tmp_path, monkeypatch):
    """An empty bucket, and the environment by which it is reached."""
    folder, port = served
    shutil.rmtree(folder)
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "here",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return folder


def refused(url):
    with pytest.raises(SpecError) as error:
        TableRef.of(url, "--members").pin().read("members")
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 400
    for secret in (KEY, SECRET, "TOPSECRET"):
        assert secret not in said
    assert url.partition("?")[0].rpartition("@")[2] in said
    return said


def test_a_table_is_read_by_its_url_and_version(bucket):
    write_deltalake(bucket / "members", pa.table({"n": [1]}))
    write_deltalake(bucket / "members", pa.table({"n": [2, 3]}), mode="overwrite")
    table = TableRef.of("s3://bucket/members", "--members").pin()
    assert (str(table), table.rows()) == ("s3://bucket/members@1", 2)
    assert table.read("members")["n"].to_pylist() == [2, 3]
    earlier = TableRef.of("s3://bucket/members@0", "--members").read("members")
    assert earlier["n"].to_pylist() == [1]
    assert "cannot be read" in refused("s3://bucket/members@7")


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (403, "SignatureDoesNotMatch"), (404, "NoSuchBucket")],
)
def test_what_a_store_refuses_is_one_line_without_keys(bucket, status, code):
    (bucket / "error").write_text(f"{status} {code}")
    said = refused("s3://bucket/members")
    assert said.startswith(f"--members 's3://bucket/members' cannot be read: {status} ")
    assert f"({code}): check the URL; credentials are given by AWS_ACCESS_KEY_ID" in said


def test_nothing_there_is_no_delta_table(bucket):
    assert "is not a Delta table" in refused("s3://bucket/none")


def test_a_store_that_goes_away_while_it_is_read(bucket):
    write_deltalake(bucket / "members", pa.table({"n": [1]}))
    table = TableRef.of("s3://bucket/members", "--members").pin()
    (bucket / "error").write_text("503 SlowDown")
    with pytest.raises(SpecError, match=r"cannot be read: 503 Service Unavailable \(SlowDown\)"):
        table.read("members")


@pytest.mark.parametrize(
    ("url", "env", "said"),
    [
        ("s3://bucket/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Connection refused"),
        ("s3a://bucket/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Connection refused"),
        ("s3://bucket/x", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials were found: "),
        ("s3://bucket/x", {"AWS_ACCESS_KEY_ID": ""}, "no credentials were found: "),
        ("az://container/x", {}, "no credentials were found: check the URL; credentials are given by AZURE_STORAGE_ACCOUNT_NAME"),
        ("abfss://container@account.dfs.core.windows.net/x", {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1", "AZURE_STORAGE_ALLOW_HTTP": "true", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=TOPSECRET"}, "given by AZURE_STORAGE_ACCOUNT_NAME"),
        ("gs://bucket/x", {"GOOGLE_SERVICE_ACCOUNT_KEY": "{}"}, "given by GOOGLE_APPLICATION_CREDENTIALS"),
        ("wrong://x/y", {}, "scheme 'wrong' is not one of s3://, s3a://"),
        ("http://127.0.0.1:1/x", {}, "--engine spark reads any URL for which Spark has a file system"),
        ("s3://", {}, "cannot be read: Generic error: Unable to recognise URL"),
        ("s3:/x", {}, "cannot be read: Generic error: Unable to recognise URL"),
        ("s3://user:TOPSECRET@bucket/x", {}, "'s3://bucket/x': its URL has a password"),
        ("s3://user:TOPSECRET/TOPSECRET@bucket/x", {}, "'s3://bucket/x': its URL has a password"),
        ("s3://user:TOPSECRET@[bucket/x", {}, "'s3://[bucket/x' is not a URL: its host or bucket has a bracket"),
        ("az://container/x?sig=TOPSECRET", {}, "'az://container/x': its URL has a password, a query"),
    ],
)  # fmt: skip
def test_what_cannot_be_reached_is_one_line(bucket, monkeypatch, url, env, said):
    for name, value in env.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert said in refused(url)


def test_a_file_url_is_its_path(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "members.parquet")
    table = TableRef.of(f"{Path(folder).as_uri()}/members.parquet", "--members")
    assert (table.path, table.rows()) == (f"{folder}/members.parquet", 1)
    write_deltalake(folder / "delta", pa.table({"n": [1]}))
    assert str(TableRef.of(f"file://{folder}/delta@0", "--members")) == f"{folder}/delta@0"


def test_a_reason_is_the_innermost_error():
    chain = "Generic S3 error\n  ↳ Error performing GET http://h/b?X-Amz=1 in 3ms - HTTP error\n"
    assert short_reason(OSError(chain + "  ↳ tcp connect error\n  ↳ refused\n")) == (
        "tcp connect error: refused"
    )
    assert short_reason(OSError(chain)) == "Generic S3 error: HTTP error"


def test_the_command_says_one_line_where_delta_rs_would_warn(bucket, muster, tmp_path, monkeypatch):
    """delta-rs looks for a machine's own role, and logs each of its tries."""
    pq.write_table(pa.table({"topic": ["a"], "partitions": [1]}), tmp_path / "topics.parquet")
    for name in ("METADATA_DISABLED", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
        monkeypatch.delenv(f"AWS_EC2_{name}" if name.startswith("META") else f"AWS_{name}")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    words = ["--members", "s3://bucket/members", "--topics", "topics.parquet"]
    done = muster("assign", *words, cwd=tmp_path)
    said = done.stderr.decode()
    assert (done.returncode, said.count("\n")) == (2, 1)
    assert said.startswith("muster: --members 's3://bucket/members' cannot be read: no credentials")

"""What other libraries raise, in one line that says the cause."""

from __future__ import annotations

import pytest

from coordinator.errors.texts import gist

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "job.py", line 8, in wrong
    return {}["no"]
           ~~^^^^^^
KeyError: 'no'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "job.py", line 9, in wrong
    except KeyError as e: raise ValueError("no such row")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no such row
"""
JAVA = """An error occurred while calling o60.count.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Scheduler.run(Scheduler.scala:1)
Caused by: java.io.IOException: disk full
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
BOTH = """An error occurred while calling o60.count.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Scheduler.run(Scheduler.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "job.py", line 8, in wrong
    raise MemoryError
MemoryError

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKER, "ValueError: no such row"),
        (JAVA, "org.apache.spark.SparkException: Job aborted: java.io.IOException: disk full"),
        (BOTH, "org.apache.spark.SparkException: Job aborted: MemoryError"),
        ("\nfirst\nsecond\n", "first"),
        ("", "RuntimeError"),
    ],
    ids=["a worker", "the JVM", "a worker in the JVM", "lines", "nothing"],
)
def test_the_cause_of_an_error_in_one_line(text, said):
    assert gist(RuntimeError(text)) == said


@pytest.mark.parametrize("odd", ["%20", "\\"])
@pytest.mark.parametrize(
    "words",
    [
        ["groups", "--store"],
        ["describe", "g", "--store"],
        ["history", "g", "--store"],
        ["explain", "g", "--store"],
        ["compact", "--store"],
        ["verify", "--store"],
        ["plans", "g", "--store"],
        ["web", "--listen", "127.0.0.1:0", "--store"],
        ["trace", "operations", "--log"],
        ["restore", "--store", "new", "--from"],
    ],
)
def test_a_path_that_no_store_can_have_is_named_for_what_it_has(muster_here, tmp_path, words, odd):
    """Nothing can be found there: not that the store is another folder is what is wrong."""
    (tmp_path / "operations").write_text('{"op": "config"}\n')
    for name in (f"a{odd}b", f"there{odd}"):
        if name.startswith("there"):
            (tmp_path / name / "log").mkdir(parents=True)
        done = muster_here(*words, str(tmp_path / name), cwd=tmp_path)
        assert done.returncode == 2
        assert f"has {odd!r} in its path, and Delta would take that for" in done.stderr.decode()
    assert {one.name for one in tmp_path.iterdir()} == {"operations", f"there{odd}"}

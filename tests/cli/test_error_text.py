"""What other libraries raise, in one line that says the cause."""

from __future__ import annotations

import pytest

from coordinator.error_text import gist

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

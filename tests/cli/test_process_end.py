"""The end of a process waits for what it left behind, and frees the store."""

import subprocess
import sys
import textwrap

import pytest

from coordinator import Coordinator

LEFT = """
    import threading, time
    from coordinator.runtime.threads_left import end_process, leave

    def run():
        time.sleep(1)
        print("done", flush=True)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    leave(thread)
"""


def run(words, *, code=0):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_a_thread_that_was_left_is_waited_for_before_the_interpreter_ends():
    """One that returns from native code to an interpreter that has ended crashes the process."""
    assert run(LEFT) == "done\n"


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_with_nothing_else_to_do_does_not_wait(code):
    assert run(f"{LEFT}\n    print('over')\n    end_process({code})", code=code) == "over\n"


def test_a_process_without_such_a_thread_ends_as_ever():
    words = "from coordinator.runtime.threads_left import end_process\nend_process(3)\nprint('on')"
    assert run(words) == "on\n"


def test_a_coordinator_that_was_not_closed_frees_its_store_at_the_end(tmp_path):
    run(f"""
        from coordinator import Coordinator
        kept = Coordinator.open({str(tmp_path / "store")!r}, topics={{"t": 1}})
    """)
    with Coordinator.open(tmp_path / "store", takeover="refuse") as successor:
        assert successor.status == "active"

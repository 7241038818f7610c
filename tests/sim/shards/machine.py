"""Threads and clocks of simulated processes: one thread runs at a time, and waiting takes no time.

What the product takes for `threading` and `time` is made of a `Machine`. A thread runs until it
waits; then the schedule says which one goes on. So the product's own threads run as they are, the
same way for each seed, and a process can be killed or stopped wherever one of its threads waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import ceil
from typing import Any, Self

from tests.sim.chance import Chance
from tests.sim.clock import EPOCH_MS, Schedule
from tests.sim.logs import Crash

JITTER_MS = 3
"""By how much a thread that waited for longer may come late."""
_idle: list[Worker] = []
"""Threads of this interpreter that wait for a task of any machine."""


class Worker:
    """A real thread that runs one task after another: to begin one takes time."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.task: Task | None = None
        threading.Thread(target=self._run, name="simulated", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.gate.acquire()
            task = self.task
            assert task is not None
            task.run_whole()
            self.task = None
            _idle.append(self)
            task.machine.gate.release()


class Process:
    """A process of the operating system, in one life.

    Attributes
    ----------
    offset
        Of its wall clock, from true time.
    frozen
        Whether it was stopped by a signal.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.offset = EPOCH_MS
        self.tasks: list[Task] = []
        self.deferred: list[Callable[[], object]] = []
        """What happens once it goes on."""
        self.count = 0


class Task:
    """A thread of a process."""

    def __init__(
        self, machine: Machine, process: Process, run: Callable[[], object], name: str
    ) -> None:
        self.machine, self.process, self.name = machine, process, name
        self.done = False
        self.turn = 0
        """Which of its waits it is in."""
        self.joiners: list[Task] = []
        self._run = run
        self._worker: Worker | None = None

    def go_on(self) -> None:
        """Let it run until it waits."""
        if self._worker is None:
            self._worker = _idle.pop() if _idle else Worker()
            self._worker.task = self
        self._worker.gate.release()

    def halt(self) -> None:
        """Wait, in its own thread, until it may go on."""
        assert self._worker is not None
        self._worker.gate.acquire()

    def run_whole(self) -> None:
        """Run from the beginning to the end."""
        try:
            if self.process.alive:
                self._run()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where the schedule runs
            self.machine.errors.append(error)
        self.done = True
        self.process.tasks.remove(self)
        for task in self.joiners:
            self.machine.wake(task)


class Machine:
    """Runs the threads of all processes, one at a time."""

    def __init__(self, schedule: Schedule, chance: Chance) -> None:
        self.schedule, self.chance = schedule, chance
        self.gate = threading.Lock()
        self.gate.acquire()
        self.errors: list[BaseException] = []
        self.task: Task | None = None
        self.process: Process | None = None
        """Whose thread, or request, is at work."""
        self.when_dead: Callable[[Process, str], object] = lambda *_: None
        """Called when a process has died by itself."""

    # From the schedule ---------------------------------------------------------------------------

    def begin(self, process: Process, run: Callable[[], object], name: str) -> Task:
        """Begin a thread of a process."""
        task = Task(self, process, run, name)
        if process.alive:
            process.tasks.append(task)
            self.wake(task)
        else:
            task.done = True
        return task

    def wake(self, task: Task) -> None:
        """Let a thread that waits go on soon."""
        self.schedule.at(self.schedule.now, self._resume, task, task.turn)

    def _resume(self, task: Task, turn: int) -> None:
        if task.turn != turn or task.done:
            return  # something else was faster
        if task.process.frozen:
            task.process.deferred.append(lambda: self._resume(task, turn))
            return
        self._switch(task)

    def _switch(self, task: Task) -> None:
        assert self.task is None
        task.turn += 1
        self.task, self.process = task, task.process
        task.go_on()
        self.gate.acquire()
        self.task = self.process = None
        if self.errors:
            raise self.errors.pop(0)

    def within(self, process: Process, work: Callable[..., object], *args: object) -> None:
        """Do something that does not wait in a process; once it goes on, where it was stopped."""
        if process.frozen:
            process.deferred.append(lambda: self.within(process, work, *args))
        elif process.alive:
            assert self.task is None
            self.process = process
            try:
                work(*args)
            finally:
                self.process = None

    def kill(self, process: Process) -> None:
        """End a process, wherever its threads are."""
        process.alive = process.frozen = False
        process.deferred.clear()
        for task in list(process.tasks):
            if not task.done:
                self._switch(task)

    def freeze(self, process: Process) -> None:
        """Stop a process as by a signal."""
        process.frozen = process.alive

    def thaw(self, process: Process) -> None:
        """Let it go on; what was due meanwhile comes in any order."""
        process.frozen = False
        due, process.deferred = process.deferred, []
        order = [
            self.chance.draw("thaw", process.name, self.schedule.now, n) for n in range(len(due))
        ]
        for _, number in sorted(zip(order, range(len(due)), strict=True)):
            self.schedule.at(self.schedule.now, due[number])

    # From a thread -------------------------------------------------------------------------------

    def check(self) -> Process:
        """Return the process that is at work; its thread ends here if the process was killed."""
        assert self.process is not None
        if not self.process.alive:
            raise Crash("killed")
        return self.process

    def die(self, why: str) -> None:
        """Kill the process from one of its own threads."""
        process = self.check()
        process.alive = False
        self.schedule.at(self.schedule.now, self.when_dead, process, why)
        raise Crash(why)

    def wait(self, ms: int | None) -> None:
        """Wait until something wakes the thread, at most for so long."""
        process, task = self.check(), self.task
        assert task is not None, "what is not in a thread must not wait"
        if ms is not None:
            process.count += 1
            if ms > JITTER_MS:
                ms += self.chance.between(0, JITTER_MS, "jitter", process.name, process.count)
            self.schedule.after(max(ms, 0), self._resume, task, task.turn)
        self.gate.release()
        task.halt()
        self.check()

    def sleep(self, seconds: float) -> None:
        """Wait for so long."""
        until, left = self.schedule.now + ceil(seconds * 1000), ceil(seconds * 1000)
        while True:
            self.wait(left)
            left = until - self.schedule.now
            if left <= 0:
                return

    def wait_for(
        self, over: Callable[[], bool], waiters: list[Task], seconds: float | None
    ) -> bool:
        """Wait, among others, until something is so; return whether it is."""
        until = None if seconds is None else self.schedule.now + ceil(seconds * 1000)
        while not over():
            left = None if until is None else until - self.schedule.now
            if left is not None and left <= 0:
                return False
            assert self.task is not None, "what is not in a thread must not wait"
            waiters.append(self.task)
            try:
                self.wait(left)
            finally:
                if self.task in waiters:
                    waiters.remove(self.task)
        return True

    def wake_all(self, waiters: list[Task]) -> None:
        """Let threads look again at what they wait for."""
        for task in waiters:
            self.wake(task)


class Event:
    """As `threading.Event`."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._set = machine, False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        """As there."""
        return self._set

    def set(self) -> None:
        """As there."""
        self._set = True
        self._machine.wake_all(self._waiters)

    def clear(self) -> None:
        """As there."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As there."""
        return self._machine.wait_for(self.is_set, self._waiters, timeout)


class Lock:
    """As `threading.Lock` or `threading.RLock`."""

    def __init__(self, machine: Machine, *, again: bool = False) -> None:
        self._machine, self._room, self._again = machine, 1, again
        self._owner: tuple[Task | None] | None = None
        self._depth = 0
        self._waiters: list[Task] = []

    def acquire(self) -> bool:
        """As there."""
        me = (self._machine.task,)
        if not (self._again and self._depth and self._owner == me):
            if self._room == 0:
                self._machine.wait_for(lambda: self._room > 0, self._waiters, None)
            self._room -= 1
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        """As there."""
        self._depth -= 1
        if not self._again or self._depth == 0:
            self._room += 1
            self._machine.wake_all(self._waiters[:1])

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


class Condition:
    """As `threading.Condition`; what is done in it never waits elsewhere, so it needs no lock."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._notes = machine, 0
        self._waiters: list[Task] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let nothing go: it was not held."""

    def wait(self, timeout: float | None = None) -> bool:
        """As there."""
        seen = self._notes
        return self._machine.wait_for(lambda: self._notes != seen, self._waiters, timeout)

    def notify(self) -> None:
        """As there."""
        self._notes += 1
        self._machine.wake_all(self._waiters)

    def notify_all(self) -> None:
        """As there."""
        self.notify()


class Thread:
    """As `threading.Thread`."""

    def __init__(
        self,
        machine: Machine,
        target: Callable[..., object],
        name: str = "",
        args: tuple[object, ...] = (),
        *,
        daemon: bool = True,
    ) -> None:
        del daemon
        self.name = name
        self._machine, self._target, self._args = machine, target, args
        self._task: Task | None = None

    def start(self) -> None:
        """As there."""
        process = self._machine.process
        assert process is not None
        self._task = self._machine.begin(process, lambda: self._target(*self._args), self.name)

    def is_alive(self) -> bool:
        """As there."""
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        """As there."""
        task = self._task
        assert task is not None
        self._machine.wait_for(lambda: task.done, task.joiners, timeout)


class Timer(Thread):
    """As `threading.Timer`."""

    def __init__(self, machine: Machine, seconds: float, work: Callable[[], object]) -> None:
        super().__init__(machine, self._wait, "timer")
        self._seconds, self._work = seconds, work
        self._over = Event(machine)

    def cancel(self) -> None:
        """As there."""
        self._over.set()

    def _wait(self) -> None:
        if not self._over.wait(self._seconds):
            self._work()


class Pool:
    """As `ThreadPoolExecutor`, with as many threads as there is work."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def submit(self, work: Callable[..., object], *given: object) -> Future[Any]:
        """As there; the work takes a while."""
        machine, future = self._machine, futures_of(self._machine)()
        process = machine.check()

        def run() -> None:
            process.count += 1
            wait = machine.chance.between(1, 50, "computes", process.name, process.count)
            machine.sleep(wait / 1000)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*given))
                except Exception as error:  # noqa: BLE001 - handed to the caller
                    future.set_exception(error)

        machine.begin(process, run, "pool")
        return future

    def shutdown(self, **_how: bool) -> None:
        """As there: what runs is not waited for."""


class Threading:
    """What a module takes for `threading`."""

    TIMEOUT_MAX = threading.TIMEOUT_MAX

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        machine = self._machine
        return {
            "Event": lambda: Event(machine),
            "Condition": lambda: Condition(machine),
            "Lock": lambda: Lock(machine),
            "RLock": lambda: Lock(machine, again=True),
            "Thread": lambda **given: Thread(machine, **given),
            "Timer": lambda seconds, work: Timer(machine, seconds, work),
        }[name]


class Time:
    """What a module takes for `time`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.sleep = machine.sleep

    def monotonic(self) -> float:
        """As there."""
        return self._machine.schedule.now / 1000

    def thread_time(self) -> float:
        """As there, in a thread that takes no time."""
        return 0.0

    def clock_gettime_ns(self, _clock: int) -> int:
        """As there, of the one clock that cannot be set."""
        return self._machine.schedule.now * 1_000_000

    def time_ns(self) -> int:
        """As there."""
        process = self._machine.process
        offset = EPOCH_MS if process is None else process.offset
        return (self._machine.schedule.now + offset) * 1_000_000


def futures_of(machine: Machine) -> type[Future[Any]]:
    """Return what a module takes for `concurrent.futures.Future`."""

    class SimulatedFuture(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waiters: list[Task] = []
            if not self.done():
                self.add_done_callback(lambda _: machine.wake_all(waiters))
            if not machine.wait_for(self.done, waiters, timeout):
                raise TimeoutError
            return super().result(0)

    return SimulatedFuture

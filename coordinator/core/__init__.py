"""The state machine: `step` decides about an event, `replay` changes the state.

What the two promise
--------------------
1. `step(state, config, event, now_ms) -> Result` reads and never writes. Equal arguments give equal
   results, on any machine, live and in recovery: this room knows no clock, no randomness, no disk,
   no thread and no Spark. A request that is refused raises `GroupError`, and has no records.
2. `replay(state, record)` is the only writer of the state. The state is what its records say, in
   their order, and nothing else: replaying a log from its beginning gives the state that its writer
   had, so a coordinator that takes over goes on where the last one ended.
3. `Result` is data. `records` say what changes; `response` is the answer; `timers` and `tasks` are
   started by the driver, and come back as events (`TimerFired`, `TargetCandidate`, …).

The driver's loop
-----------------
::

    state = State()
    for record in log.read():                       # recovery: replay alone
        replay(state, record)
    for events in batches():                        # requests, timers that fired, results of tasks
        results, records = [], []
        for event in events:
            try:
                result = step(state, config, event, now_ms())
            except GroupError as refusal:
                result = Result(response=refusal)   # no records, no timers
            for record in result.records:
                replay(state, record)               # the next event of the batch sees it
            results.append(result)
            records += result.records
        log.append(records)                         # one commit; an error ends the loop here
        for result in results:
            start(result.timers, result.tasks)
            answer(result.response)

The order of append and answer
------------------------------
4. An answer leaves after the records of its batch, and of every batch before it, are durable; one
   without records too, since it may tell what records of the same batch changed.
5. Memory is ahead of the log between `replay` and the append. When the append fails, or its outcome
   is not known, the driver sends no answer, drops the state and replays the log: it never repairs
   the state.
6. Before an answer leaves, the driver has seen that the log is still its own.

`coordinator/runtime/event_processor.py` is this loop, for requests as for traces and simulations.
Start with `state_machine.py`, whose table leads from each kind of event to what decides it.
"""

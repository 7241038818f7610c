"""What of a golden answer is compared, by the kind of its file, as the READMEs of the golden data say.

A `trace` or a `wide` walk is of the consumer protocol; its lists are sets. A `scenario` or a `walk` is
of the classic protocol, where the order of most lists counts; a walk's answers are cut down.
"""

from __future__ import annotations

import json

SENTENCES = {"error_message", "errorMessage"}
FREE = SENTENCES | {"metadataHash", "clientId", "clientHost"}
FREE_OF_CLASSIC = SENTENCES | {"metadataHash", "exception", "currentStateTimestamp"}
UNDERSTANDING = ("pending", "log", "tasks")
"""For understanding only: which timers run, what the log holds."""
OF_A_WALK = ("response", "waiting", "completed", "groups", "results", "now")
DESCRIBED = ("groupState", "groupEpoch", "assignmentEpoch", "errorCode")
DESCRIBED_OF_MEMBERS = (
    *("memberId", "memberEpoch", "subscribedTopicRegex"),
    *("assignment", "targetAssignment"),
)


def comparable(answer, case, op, *, wide):
    """Return what is compared of our answer, and of the line of a file that has Kafka's."""
    if "answer" not in case:
        return _of_walk(answer, op), _of_walk(case, op)
    if "n" in case["answer"]:
        return _of_scenario(answer), _of_scenario(case["answer"])
    return _of_trace(answer, wide=wide), _of_trace(case["answer"], wide=wide)


def _of_trace(answer, *, wide):
    found = _sorted(_bare(answer, FREE))
    found.pop("pending", None)
    if "timers" in found:
        # Those of one instant: Kafka's order is that of its hash table; which of them wrote the
        # group's end follows from it.
        found["timers"] = sorted((timer["at"], timer["timer"]) for timer in found["timers"])
    if wide:
        found.pop("tasks", None)
    if wide and "group" in found:
        members = found["group"]["members"]
        found["group"] = {name: found["group"][name] for name in DESCRIBED}
        found["group"]["members"] = [
            {name: member[name] for name in DESCRIBED_OF_MEMBERS} for member in members
        ]
    return found


def _of_scenario(answer):
    found = _bare(answer, FREE_OF_CLASSIC)
    for name in UNDERSTANDING:
        found.pop(name, None)
    for written in [found, *found.get("timers", [])]:
        if "records" in written:
            written["records"].sort(key=_text_of)
    for member in found.get("group", {}).get("members", []):
        for name in ("assignment", "targetAssignment"):
            member[name] = _sorted(member[name])
    return found


def _of_walk(answer, op):
    found = _bare({name: answer[name] for name in OF_A_WALK if name in answer}, FREE_OF_CLASSIC)
    for one in [found.get("response", {}), *found.get("groups", [])]:
        one.pop("error", None)
    for one in found.get("completed", []):
        one["response"].pop("error", None)
    if op["op"] == "describe":
        found["group"] = answer["group"] if "state" in answer["group"] else _cut(answer["group"])
    return found


def _cut(group):
    """Return a description as a recorded walk cuts it down."""
    members = [
        [
            member["memberId"],
            member["memberEpoch"],
            member["memberType"],
            *(_partitions(member[name]) for name in ("assignment", "targetAssignment")),
        ]
        for member in group["members"]
    ]
    return {
        "state": group["groupState"],
        "epoch": group["groupEpoch"],
        "target": group["assignmentEpoch"],
        "err": group["errorCode"],
        "members": members,
    }


def _partitions(assignment):
    topics = assignment["topicPartitions"]
    return sorted([topic["topicName"], sorted(topic["partitions"])] for topic in topics)


def _bare(value, free):
    """Return a value of its own without the fields that need not match."""
    if isinstance(value, dict):
        return {key: _bare(found, free) for key, found in value.items() if key not in free}
    if isinstance(value, list):
        return [_bare(found, free) for found in value]
    return value


def _sorted(value):
    """Return a value with each list in one order, as all of them are sets."""
    if isinstance(value, dict):
        return {key: _sorted(found) for key, found in _in_pairs(value).items()}
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=_text_of)
    return value


def _in_pairs(value):
    """Return partitions with the epoch of each beside it, so that they are sorted together."""
    if "assignmentEpochs" not in value:
        return value
    pairs = zip(value["partitions"], value["assignmentEpochs"], strict=True)
    return value | {"partitions": [f"{p}@{epoch}" for p, epoch in pairs], "assignmentEpochs": []}


def _text_of(value):
    return json.dumps(value, sort_keys=True)

"""What of a classic trace's answer is to be compared, as the README of the golden data says."""

from __future__ import annotations

from tests.support.traces.comparison import text_of

FREE = {"metadataHash", "exception", "currentStateTimestamp", "error_message", "errorMessage"}
UNDERSTANDING = ("pending", "log", "tasks")
"""For understanding only: which timers run, what the log holds."""
OF_A_WALK = ("response", "waiting", "completed", "groups", "results", "now")


def compared_of_scenario(answer):
    """Return a scenario's answer: all of it, records of one step in any order."""
    found = _bare(answer)
    for name in UNDERSTANDING:
        found.pop(name, None)
    if "records" in found:
        found["records"].sort(key=text_of)
    for timer in found.get("timers", []):
        timer["records"].sort(key=text_of)
    for member in found.get("group", {}).get("members", []):
        for assignment in (member["assignment"], member["targetAssignment"]):
            for topic in assignment["topicPartitions"]:
                topic["partitions"].sort()
            assignment["topicPartitions"].sort(key=text_of)
    return found


def compared_of_walk(answer, op):
    """Return of an answer what a walk tells of it."""
    found = _bare({name: answer[name] for name in OF_A_WALK if name in answer})
    for told in [found.get("response", {}), *found.get("groups", [])]:
        told.pop("error", None)
    for told in found.get("completed", []):
        told["response"].pop("error", None)
    if op["op"] == "describe":
        found["group"] = answer["group"] if "state" in answer["group"] else _cut(answer["group"])
    return found


def _cut(group):
    members = [
        [
            member["memberId"],
            member["memberEpoch"],
            member["memberType"],
            _partitions(member["assignment"]),
            _partitions(member["targetAssignment"]),
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


def _bare(value):
    if isinstance(value, dict):
        return {key: _bare(found) for key, found in value.items() if key not in FREE}
    if isinstance(value, list):
        return [_bare(found) for found in value]
    return value

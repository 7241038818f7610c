"""What of a trace's answer is to be compared: everything but what the golden README leaves open."""

from __future__ import annotations

import json

DESCRIBED = ("groupState", "groupEpoch", "assignmentEpoch", "errorCode")
DESCRIBED_OF_MEMBERS = (
    *("memberId", "memberEpoch", "subscribedTopicRegex"),
    *("assignment", "targetAssignment"),
)
HASHES = {"metadataHash", "clientId", "clientHost", "error_message", "errorMessage"}


def comparable(answer):
    """Return an answer without hashes and sentences, sets in one order, spans of time merged."""
    answer = _bare(answer)
    answer.pop("pending", None)
    if "timers" in answer:
        # Those of one instant: Kafka's order is that of its hash table; which of them wrote the
        # group's end follows from it.
        answer["timers"] = sorted((timer["at"], timer["timer"]) for timer in answer["timers"])
    if "records" in answer:
        answer["records"] = sorted(map(text_of, answer["records"]))
    if "group" in answer:
        answer["group"]["members"] = sorted(answer["group"]["members"], key=text_of)
    return answer


def compared_when_wide(answer):
    """Return of a wide walk's answer what its README compares: no tasks, of a description less."""
    answer = comparable(answer)
    answer.pop("tasks", None)
    if "group" in answer:
        group = answer["group"]
        answer["group"] = {name: group[name] for name in DESCRIBED}
        answer["group"]["members"] = [
            {name: member[name] for name in DESCRIBED_OF_MEMBERS} for member in group["members"]
        ]
    return answer


def _bare(value):
    if isinstance(value, dict):
        return {key: _bare(found) for key, found in value.items() if key not in HASHES}
    if isinstance(value, list):
        return _sorted([_bare(found) for found in value])
    return value


def _sorted(values):
    """Lists of partitions, topics and members are sets."""
    if values and all(isinstance(value, dict) and "assignmentEpochs" in value for value in values):
        for value in values:
            pairs = sorted(zip(value["partitions"], value["assignmentEpochs"], strict=True))
            value["partitions"] = [p for p, _ in pairs]
            value["assignmentEpochs"] = [e for _, e in pairs]
        return sorted(values, key=text_of)
    return sorted(values, key=text_of)


def text_of(value):
    return json.dumps(value, sort_keys=True)

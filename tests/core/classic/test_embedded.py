"""What consumers tell each other inside JoinGroup and SyncGroup, in all its versions."""

from __future__ import annotations

import struct

import pytest

from coordinator.core.state.embedded import (
    Assignment,
    MalformedError,
    Subscription,
    read_assignment,
    read_subscription,
    topics_of,
    write_assignment,
    write_subscription,
)


def text(word):
    return struct.pack(">h", len(word)) + word.encode()


PARTITIONS = struct.pack(">i", 1) + text("a") + struct.pack(">iii", 2, 0, 5)


@pytest.mark.behaviour("H-4", "P-8", "P-10", "P-20", "P-36")
@pytest.mark.parametrize("version", range(4))
def test_a_subscription_has_what_its_version_has(version):
    raw = struct.pack(">hi", version, 2) + text("a") + text("b") + struct.pack(">i", 1) + b"!"
    raw += PARTITIONS if version >= 1 else b""
    raw += struct.pack(">i", 7) if version >= 2 else b""
    raw += text("r") if version >= 3 else b""
    found = read_subscription(raw)
    assert found == Subscription(
        version, ["a", "b"], b"!",
        owned={"a": [0, 5]} if version >= 1 else {},
        generation=7 if version >= 2 else -1,
        rack="r" if version >= 3 else None,
    )  # fmt: skip
    assert write_subscription(found) == raw
    assert topics_of([raw]) == {"a", "b"}


@pytest.mark.behaviour("H-4", "P-9", "P-36")
@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_what_its_version_has(version):
    raw = struct.pack(">h", version) + PARTITIONS + struct.pack(">i", -1)
    found = read_assignment(raw)
    assert found == Assignment(version, {"a": [0, 5]}, None)
    assert write_assignment(found) == raw


@pytest.mark.behaviour("H-4", "P-36")
def test_a_newer_version_is_read_as_far_as_ours_goes():
    raw = write_subscription(Subscription(3, ["a"], rack="r"))
    newer = struct.pack(">h", 9) + raw[2:] + b"what we do not know"
    assert (read_subscription(newer).topics, read_subscription(newer).rack) == (["a"], "r")


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
def test_bytes_that_are_none(read):
    for raw in (b"", b"\0", b"\xff\xff" + bytes(8), struct.pack(">hi", 0, 2**31 - 1)):
        with pytest.raises(MalformedError):
            read(raw)
    assert topics_of([b"?"]) is None


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
@pytest.mark.parametrize(
    "tail",
    [
        struct.pack(">i", 2**31 - 1),  # topics
        struct.pack(">ih1si", 1, 1, b"t", 2**31 - 1),  # its partitions, or bytes for the user
    ],
)
def test_a_count_reserves_no_memory(read, tail):
    with pytest.raises(MalformedError, match="are announced where"):
        read(struct.pack(">h", 1) + tail)

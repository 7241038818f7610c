"""The API of a store, asked in this process."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec

from coordinator.api.operations import BASE, OPERATIONS

BY_NAME = {one.name: one for one in OPERATIONS}


def address(name, *names, **given):
    """Return the address of an operation, with what its path names in order."""
    parts = iter(names)
    path = "/".join(
        quote(next(parts), safe="") if one.startswith("{") else one
        for one in BY_NAME[name].path.split("/")
    )
    return BASE + path + (f"?{urlencode(given)}" if given else "")


def ask(client, name, *names, auth=None, **given):
    """Return the answer of an operation, which is of its shape, and nothing more."""
    answer = client.get(address(name, *names, **given), auth=auth)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return shaped(answer, name)


def shaped(answer, name):
    """Return an answer, which is of its operation's shape, and nothing more."""
    found = msgspec.convert(answer.json(), BY_NAME[name].answer)
    assert msgspec.json.decode(msgspec.json.encode(found)) == answer.json()
    return answer.json()


def list_all(client, name, *names, auth=None, **given):
    """Return the items of all pages."""
    values = ask(client, name, *names, auth=auth, **given)
    found = values["items"]
    while "next" in values:
        values = client.get(values["next"], auth=auth).json()
        assert values["items"], "no page is empty but the first"
        found += values["items"]
    return found


def problem_of(answer, code):
    """Return what a problem says, which must have a status."""
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    values = answer.json()
    assert values["status"] == code
    assert values["type"].startswith("urn:muster:problem:")
    return values["detail"]

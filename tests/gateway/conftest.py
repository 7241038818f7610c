"""What tests of the gateway share."""

import pytest


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request, monkeypatch):
    """Both event loops."""
    if request.param == "asyncio":
        monkeypatch.setattr("coordinator.wire.listener.find_spec", lambda _: None)

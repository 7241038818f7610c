"""A member's connections: what they survive, and who is let in."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from coordinator import Coordinator, Fenced, GroupError, Member
from coordinator.config import ServerConfig
from coordinator.errors import ErrorCode
from tests.member.runs import PATIENCE_S, QUICK, Diary, Running, until
from tests.wire.test_access import acls, certificates, tls_of, users
from tests.wire.test_server import served

__all__ = ["acls", "certificates", "users"]


class Proxy:
    """A network between members and a server; while it is cut, bytes wait, both ways."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.whole = threading.Event()
        self.whole.set()
        self.sockets = [self.listening]

    def begin(self, target):
        threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def close(self):
        self.whole.set()
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, target):
        with suppress(OSError):
            while True:
                near = self.listening.accept()[0]
                far = socket.create_connection(target)
                self.sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source, to):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.whole.wait()
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def network():
    """A coordinator, its address, and a proxy through which members find it."""
    proxy = Proxy()
    with socket.create_server(("127.0.0.1", 0)) as free:
        target = free.getsockname()
    server = ServerConfig(listen=f"127.0.0.1:{target[1]}", advertised=proxy.address)
    opened = Coordinator.open(None, config=replace(QUICK, server=server), topics={"clicks": 2})
    with opened as coordinator, coordinator.serve():
        proxy.begin(target)
        yield coordinator, proxy
        proxy.close()


def test_a_worker_that_is_cut_off_stops_before_another_one_begins(network, caplog):
    coordinator, proxy = network
    diary = Diary()
    ann = Member(
        proxy.address, group_id="g", topics="clicks", rebalance_timeout_ms=1_000,
        **diary.callbacks("ann"),
    )  # fmt: skip
    bob = Member(coordinator, group_id="g", topics="clicks", **diary.callbacks("bob"))
    with Running(ann, diary.work("ann")):
        until(lambda: diary.when("ann", "begins", "clicks-1"))
        proxy.whole.clear()
        with Running(bob, diary.work("bob")):
            until(lambda: diary.when("bob", "begins", "clicks-1"))
            for partition in ("clicks-0", "clicks-1"):
                ended = diary.when("ann", "ends", partition)
                assert ended < diary.when("bob", "begins", partition)
            with pytest.raises(Fenced, match="not, or no longer, owned by this member"):
                ann.commit({("clicks", 0): 1})
            proxy.whole.set()
            until(lambda: len(ann.owned) == 1)  # it is back
            assert len(bob.owned) == 1
    assert caplog.text.count("a heartbeat is") == 1  # once a minute


def test_a_member_goes_on_with_a_connection_of_another_time(network):
    _, proxy = network
    with Member(f"127.0.0.1:1,{proxy.address}", group_id="g", topics="clicks") as member:
        first = member.wait_for_change(PATIENCE_S)
        for one in proxy.sockets[1:]:
            with suppress(OSError):  # the other end of one that went
                one.shutdown(socket.SHUT_RDWR)
        member.commit({("clicks", 0): 5})
        assert member.committed(("clicks", 0)) == 5
        assert member.owned == first.owned


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_member_logs_in_over_tls(certificates, users, acls, mechanism):
    tls = ssl.create_default_context(cafile=certificates / "ca.pem")
    login = {"sasl_mechanisms": (mechanism,), "sasl_users": users, "acls": acls}

    def member(password):
        who = (mechanism, "ann", password)
        return Member(address, group_id="g", topics="clicks", tls=tls, login=who)

    with served(**tls_of(certificates), **login) as (_, address):
        with member("secret") as joined:
            assert len(joined.wait_for_change(PATIENCE_S).owned) == 4
        with member("Secret") as refused, pytest.raises(GroupError, match="wrong name") as error:
            refused.run(lambda *_: None)
        assert error.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_what_is_no_broker_is_tried_again(caplog):
    """Bytes that are no answer end the connection, never the member."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with Member(address, group_id="g", topics="clicks", session_timeout_ms=1_500) as member:
            for garbage in (b"HTTP/1.1 400 Bad Request", bytes(8), b"\0\0\0\5" + bytes(5)):
                near = listening.accept()[0]
                near.sendall(garbage)
                near.close()
            assert member.wait_for_change(0) is None
    assert caplog.text.count("a heartbeat is not answered") == 1

"""Java's own client with tokens of an authorization server, which it asks for the next in time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from coordinator.config import Config
from coordinator.runtime.coordinator import Coordinator
from coordinator.wire.oauth.token_login import TokenLogin
from tests.clients.java import tools, with_tokens
from tests.oauth.made_tokens import SAFE, Publisher, current, token_settings
from tests.support.members import wait_for
from tests.support.processes import running

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_JAVA"), reason="needs a JDK and Kafka's tools: make test-java"
)
LIVES_S = 6
SETTINGS = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={url}
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
clientId="ann" clientSecret="secret";
group.protocol=consumer
"""


@pytest.fixture
def tokens():
    """A server that gives a new token each 200 ms, for a few seconds."""
    with Publisher(b"") as server:
        server.headers, ended = {"Content-Type": "application/json"}, threading.Event()

        def renew():
            while not ended.wait(0.2):
                token = current(exp=time.time() + LIVES_S)
                server.text = json.dumps({"access_token": token, "expires_in": LIVES_S}).encode()

        thread = threading.Thread(target=renew)
        thread.start()
        wait_for(lambda: server.text)
        yield server
        ended.set()
        thread.join()


def test_java_clients_log_in_and_stay(tokens, tmp_path, monkeypatch):
    prolonged, again = [], TokenLogin.again
    monkeypatch.setattr(
        TokenLogin, "again", lambda self: prolonged.append(again(self)) or prolonged[-1]
    )
    acls, settings = tmp_path / "acls.toml", tmp_path / "client.properties"
    acls.write_text("super_users = ['User:ann']")
    settings.write_text(SETTINGS.format(url=tokens.url))
    server = replace(SAFE, acls=str(acls))
    config = Config(server=server, oauth=token_settings(tmp_path))
    command = with_tokens(tools(), tokens.url)
    with (
        Coordinator.open(tmp_path / "store", topics={"clicks": 2}, config=config) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        to = ["--bootstrap-server", serving.address]
        consumer = [
            *command, "org.apache.kafka.tools.consumer.ConsoleConsumer", *to, "--topic", "clicks",
            "--group", "g", "--command-config", str(settings),
        ]  # fmt: skip
        with running(consumer, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            wait_for(lambda: len([one for one in prolonged if one]) > 1 or process.poll())
            (found,) = coordinator.consumer_group_describe("g")
            process.terminate()
            said = process.stderr.read()
        assert [member["member_epoch"] for member in found["members"]] == [2], said
        listed = subprocess.run(
            [*command, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *to, "--list",
             "--command-config", str(settings)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert listed.stdout == "g\n", listed.stderr

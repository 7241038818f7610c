"""A worker as users write it, on librdkafka.

`python librdkafka.py '{"subscribe": ["clicks"], "config": {"bootstrap.servers": …}}'` joins, resumes
each partition that it is given where the last owner stopped, and commits a little more again and
again. SIGTERM makes it leave. It is of the consumer protocol, unless `group.protocol` says `classic`.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from worker import PATIENCE_S, POLL_S, RefusedError, Worker, arguments, run, say


def keys_of(partitions):
    return [(one.topic, one.partition) for one in partitions]


class Member(Worker):
    """librdkafka's consumer."""

    def __init__(self, subscribe, config):
        super().__init__()
        self.consumer = Consumer(
            {"group.protocol": "consumer", "enable.auto.commit": False} | config
        )
        self.consumer.subscribe(
            subscribe,
            on_assign=lambda _, given: self.assigned(
                keys_of(given), member=self.consumer.memberid()
            ),
            on_revoke=lambda _, taken: self.revoked(keys_of(taken)),
            on_lost=lambda _, gone: self.lost(keys_of(gone)),
        )

    def read_offsets(self, keys):
        try:
            found = self.consumer.committed([TopicPartition(*key) for key in keys], PATIENCE_S)
        except KafkaException as error:
            raise RefusedError(str(error)) from error
        return {
            (one.topic, one.partition): None if one.offset == OFFSET_INVALID else one.offset
            for one in found
        }

    def write_offsets(self, offsets):
        asked = [TopicPartition(*key, offset) for key, offset in offsets.items()]
        try:
            done = self.consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            raise RefusedError(error.args[0].name()) from error
        return {(one.topic, one.partition): one.offset for one in done if not one.error}

    def poll(self):
        message = self.consumer.poll(POLL_S)
        if message is not None and message.error():
            say("error", message=message.error().name())


def main():
    member = Member(*arguments())
    run(member, member.poll, member.consumer.close)


if __name__ == "__main__":
    main()

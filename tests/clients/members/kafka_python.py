"""A worker on kafka-python; its argument is librdkafka.py's.

It commits nothing as it lets go: what kafka-python calls back must not block. kafka-python 3.0.12 may
stay silent indefinitely after it led a group before it knew the topic's partitions, so it asks for them
first; and so it may where polls are short (20 ms).
"""

from __future__ import annotations

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaConnectionError, KafkaError
from worker import PATIENCE_S, RefusedError, Worker, arguments, name_of, run, say

POLL_MS = 300


class Member(Worker, ConsumerRebalanceListener):
    """kafka-python's consumer, and what it calls back."""

    def __init__(self, subscribe, config):
        super().__init__()
        settings = {name.replace(".", "_"): value for name, value in config.items()}
        self.consumer = KafkaConsumer(enable_auto_commit=False, **settings)
        for topic in subscribe:
            self.consumer.partitions_for_topic(topic)
        self.consumer.subscribe(subscribe, listener=self)

    def on_partitions_assigned(self, assigned):
        generation = self.consumer._coordinator._generation
        known = {"member": generation.member_id, "epoch": generation.generation_id}
        self.assigned([tuple(one) for one in assigned], **known)

    def on_partitions_revoked(self, revoked):
        keys = [tuple(one) for one in revoked if tuple(one) in self.offsets]  # or it says so twice
        self.forget(keys)
        say("revoke", partitions=[name_of(key) for key in keys])

    def on_partitions_lost(self, lost):
        self.lost([tuple(one) for one in lost])

    def poll(self):
        """Poll; while a server is away, 3.0.12 may raise what it would try again itself."""
        try:
            self.consumer.poll(timeout_ms=POLL_MS)
        except KafkaConnectionError as error:
            say("error", message=str(error))

    def read_offsets(self, keys):
        try:
            return {
                key: self.consumer.committed(TopicPartition(*key), timeout_ms=1000 * PATIENCE_S)
                for key in keys
            }
        except KafkaError as error:
            raise RefusedError(str(error)) from error

    def write_offsets(self, offsets):
        asked = {
            TopicPartition(*key): OffsetAndMetadata(offset, "", -1)
            for key, offset in offsets.items()
        }
        try:
            self.consumer.commit(asked, timeout_ms=1000 * PATIENCE_S)
        except KafkaError as error:
            raise RefusedError(str(error)) from error
        return offsets


def main():
    member = Member(*arguments())
    run(
        member,
        member.poll,
        lambda: member.consumer.close(autocommit=False),
    )


if __name__ == "__main__":
    main()

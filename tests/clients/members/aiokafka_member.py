"""A worker on aiokafka, whose loop runs beside the worker's thread; its argument is librdkafka.py's."""

from __future__ import annotations

import asyncio
import threading
import time

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError
from worker import PATIENCE_S, POLL_S, RefusedError, Worker, arguments, run


class Member(Worker, ConsumerRebalanceListener):
    """aiokafka's consumer, and what it calls back."""

    def __init__(self, loop):
        super().__init__()
        self.loop = loop
        self.lock = threading.RLock()
        """Callbacks come in threads of their own."""

    async def start(self, subscribe, config):
        settings = {name.replace(".", "_"): value for name, value in config.items()}
        self.consumer = AIOKafkaConsumer(enable_auto_commit=False, **settings)
        self.consumer.subscribe(subscribe, listener=self)
        await self.consumer.start()

    async def on_partitions_assigned(self, assigned):
        coordinator = self.consumer._coordinator
        known = {"member": coordinator.member_id, "epoch": coordinator.generation}
        await asyncio.to_thread(self.locked, self.assigned, list(map(tuple, assigned)), **known)

    async def on_partitions_revoked(self, revoked):
        await asyncio.to_thread(self.locked, self.revoked, list(map(tuple, revoked)))

    def locked(self, call, *words, **fields):
        with self.lock:
            call(*words, **fields)

    def work(self):
        self.locked(super().work)

    def close(self):
        """Give up all partitions, which aiokafka does without a callback, and leave."""
        with self.lock:
            self.revoked(list(self.offsets))
        self.wait(self.consumer.stop())

    def wait(self, coroutine):
        """Let the consumer's loop do something, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(PATIENCE_S)
        except TimeoutError:
            future.cancel()
            raise RefusedError("no answer") from None
        except KafkaError as error:
            raise RefusedError(str(error)) from error

    def read_offsets(self, keys):
        return {key: self.wait(self.consumer.committed(TopicPartition(*key))) for key in keys}

    def write_offsets(self, offsets):
        self.wait(self.consumer.commit({TopicPartition(*key): at for key, at in offsets.items()}))
        return offsets


def main():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    member = Member(loop)
    asyncio.run_coroutine_threadsafe(member.start(*arguments()), loop).result()
    run(member, lambda: time.sleep(POLL_S), member.close)


if __name__ == "__main__":
    main()

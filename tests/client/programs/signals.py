"""Signals at random moments in every public call of a consumer; their handler calls `wakeup`."""

from __future__ import annotations

import random
import signal
import sys
import uuid
from collections.abc import Callable

from kohort import Consumer, KohortError, OffsetAndMetadata, Producer, TopicPartition


class Alarm:
    """Interrupts the main thread repeatedly, and wakes a consumer."""

    def __init__(self) -> None:
        self.count = 0
        self.consumer: Consumer | None = None
        signal.signal(signal.SIGALRM, self.handle)

    def handle(self, _number: int, _frame: object) -> None:
        self.count += 1
        if self.consumer is not None:
            self.consumer.wakeup()
        self.again()

    def again(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 5e-4))


def calls(consumer: Consumer, topic: str) -> list[Callable[[], object]]:
    one = TopicPartition(topic, 0)
    return [
        lambda: consumer.poll(timeout_ms=50),
        lambda: consumer.poll_arrow(timeout_ms=20),
        lambda: consumer.poll_membership(timeout_ms=20),
        lambda: [next(consumer, None) for _ in range(20)],
        consumer.commit,
        lambda: consumer.commit_async().result(60),
        lambda: consumer.commit({one: OffsetAndMetadata(1)}),
        lambda: consumer.committed(one),
        lambda: consumer.position(one),
        consumer.positions,
        lambda: consumer.highwater(one),
        lambda: consumer.current_lag(one),
        lambda: consumer.seek(one, 3),
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.pause(one),
        consumer.paused,
        lambda: consumer.resume(one),
        lambda: consumer.beginning_offsets([one]),
        lambda: consumer.end_offsets([one]),
        lambda: consumer.offsets_for_times({one: 0}),
        lambda: consumer.partitions_for_topic(topic),
        consumer.topics,
        consumer.assignment,
        consumer.subscription,
        consumer.metrics,
        consumer.enforce_rebalance,
        lambda: consumer.subscribe([topic]),
        consumer.unsubscribe,
        lambda: consumer.assign([one]),
    ]


def main(bootstrap: str, wanted: str) -> None:
    topic = f"signals-{uuid.uuid4().hex[:10]}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    alarm = Alarm()
    alarm.again()
    raised: set[str] = set()
    while alarm.count < int(wanted):
        consumer = alarm.consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            max_poll_records=7,
        )
        again = calls(consumer, topic)
        polls = again[0]
        random.shuffle(again)
        for call in [polls, *again]:
            try:
                call()
            except KohortError as error:
                raised.add(type(error).__name__)
        consumer.close()
        consumer.wakeup()
    alarm.consumer = None
    # A pending signal must not set the timer again: at the very end, no handler exists.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("signals:", "all" if alarm.count >= int(wanted) else alarm.count)
    print("raised:", *sorted(raised), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])

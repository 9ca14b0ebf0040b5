"""Transactions of several producers at once, and what must hold of any history of them.

Each transaction writes its records, which are unlike all others, to several partitions. Of what
readers of committed records see, as Adya's anomalies have it:

- aborted reads (G1a): no record of a transaction that was aborted;
- intermediate reads (G1b): in the end all records of a transaction, or none;
- lost writes: each record of a transaction whose commit was acknowledged;
- no record twice, the transactions of one producer in their order in each partition, and what one
  reader saw is the beginning of what another sees.

Records of two transactions may be in one order here and in another order there: Kafka serialises
the writes of a partition, not transactions (G0).
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum

from msgspec import Struct

from kohort import Consumer, KafkaError, Producer, TopicPartition
from kohort.errors import BrokerUnavailableError, KohortError

PARTITIONS = 3


class Outcome(Enum):
    """What a producer knows of a transaction."""

    COMMITTED = 1
    ABORTED = 2
    UNKNOWN = 3


class Done(Struct, frozen=True):
    """A transaction of a history: `name` is in each of its records."""

    name: str
    producer: int
    places: tuple[int, ...]
    outcome: Outcome

    def values(self) -> list[tuple[int, bytes]]:
        """Its records, with their partitions."""
        return [(place, f"{self.name}.{at}".encode()) for at, place in enumerate(self.places)]


def violations(history: Iterable[Done], read: Mapping[int, Sequence[bytes]]) -> list[str]:
    """What is wrong with what is read of each partition once all transactions have ended."""
    found: list[str] = []
    where = Counter((place, value) for place, values in read.items() for value in values)
    found += [
        f"{value!r} is read {count} times" for (_, value), count in where.items() if count > 1
    ]
    known: set[tuple[int, bytes]] = set()
    last: dict[tuple[int, int], int] = {}
    order = {
        key: at for place, values in read.items() for at, key in enumerate(_keys(place, values))
    }
    for done in history:
        written = done.values()
        known.update(written)
        there = [each for each in written if each in where]
        if done.outcome is Outcome.ABORTED and there:
            found.append(f"aborted read: {there} of {done}")
        if done.outcome is Outcome.COMMITTED and len(there) < len(written):
            found.append(f"lost write: {set(written) - set(there)} of {done}")
        if 0 < len(there) < len(written):
            found.append(f"intermediate read: {there} of {done}")
        for each in there:
            before = last.get((done.producer, each[0]), -1)
            if order[each] <= before:
                found.append(f"out of order: {each} of {done}")
            last[done.producer, each[0]] = order[each]
    return found + [f"{each} was written by nobody" for each in where.keys() - known]


def _keys(place: int, values: Iterable[bytes]) -> Iterable[tuple[int, bytes]]:
    return ((place, value) for value in values)


def work(bootstrap: str, topic: str, number: int, count: int, seed: int) -> list[Done]:
    """Let one producer make transactions; it begins anew after an error that it cannot bear."""
    rng = random.Random(seed * 1_000 + number)
    done: list[Done] = []
    producer = _producer(bootstrap, topic, number)
    while len(done) < count:
        name = f"{number}-{len(done)}"
        places = tuple(rng.randrange(PARTITIONS) for _ in range(rng.randrange(1, 6)))
        commits, abandons = rng.random() < 0.6, rng.random() < 0.08
        outcome = Outcome.ABORTED
        try:
            producer.begin_transaction()
            for place, value in Done(name, number, places, outcome).values():
                producer.send(topic, value, partition=place)
            if commits and not abandons:
                outcome = Outcome.UNKNOWN
                producer.commit_transaction()
                outcome = Outcome.COMMITTED
            elif not abandons:
                producer.abort_transaction()
        except (KafkaError, KohortError):
            abandons = True
        done.append(Done(name, number, places, outcome))
        if abandons:  # a successor with the same id ends what is open
            producer.close(0)
            producer = _producer(bootstrap, topic, number)
    producer.close()
    return done


def _producer(bootstrap: str, topic: str, number: int) -> Producer:
    return Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-{number}")


class Reader:
    """Reads what is committed, from the beginning, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self._given = bootstrap, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        bootstrap, topic = self._given
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        with Consumer.from_config({"bootstrap.servers": bootstrap, **settings}) as consumer:
            consumer.assign(places)
            while not (self._over.is_set() and self._is_at_the_end(consumer, places)):
                with suppress(BrokerUnavailableError):  # it was killed before it was ever reached
                    for place, records in consumer.poll(50).items():
                        self.read[place.partition] += [each.value for each in records]

    def _is_at_the_end(self, consumer: Consumer, places: list[TopicPartition]) -> bool:
        ends = consumer.end_offsets(places)
        return all(consumer.position(place) >= ends[place] for place in places)

    def stop(self) -> None:
        """Let it read to the end."""
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

"""A program with all kinds of state, its input, and a model of it in plain Python."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kohort import AsyncConsumer, AsyncProducer, TopicPartition
from kohort.streams import JSON, App
from kohort.streams.app.plan import OnError
from tests.real_kafka.foreign import create_topic

WAIT_S = 90.0
PARTITIONS = 3
WINDOW_MS = 1_000
GRACE_MS = 600_000
PLANES = [f"N{number:03d}" for number in range(24)]
MAKERS = ["AIRBUS", "BOEING", "CESSNA", "EMBRAER"]
FLIGHTS, AIRCRAFT, TOTALS, HOURLY = "flights", "planes", "totals", "hourly"


@asynccontextmanager
async def in_time(seen: Callable[[], object]) -> AsyncIterator[None]:
    """Bound a wait; what was seen last is told when it takes too long."""
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except TimeoutError as error:
        raise AssertionError(f"not within {WAIT_S:.0f} s; last seen: {seen()}") from error


class Flight(NamedTuple):
    """A record of the input."""

    plane: str
    delay: int
    timestamp: int


def maker_of(plane: str) -> str:
    return MAKERS[int(plane[1:]) % len(MAKERS)]


def some_flights(count: int, seed: int) -> list[Flight]:
    """Return flights in the order of time, so that no window is closed before its records."""
    chosen = random.Random(seed)
    return [
        Flight(chosen.choice(PLANES), chosen.randrange(1, 60), seed * 1_000 + number * 10)
        for number in range(count)
    ]


def model(flights: Iterable[Flight]) -> tuple[dict[str, int], dict[tuple[str, int], int]]:
    """Return the totals of planes, and how many flights a maker had in a window."""
    totals: dict[str, int] = {}
    hourly: dict[tuple[str, int], int] = {}
    for plane, delay, timestamp in flights:
        totals[plane] = totals.get(plane, 0) + delay
        place = maker_of(plane), timestamp // WINDOW_MS * WINDOW_MS
        hourly[place] = hourly.get(place, 0) + 1
    return totals, hourly


class Fleet:
    """The application, with topics of its own on a broker."""

    def __init__(self, address: str, on_error: OnError = "stop") -> None:
        self.address = address
        self.name = f"fleet-{uuid.uuid4().hex[:10]}"
        self.on_error: OnError = on_error
        self.sent: list[Flight] = []
        for topic in (FLIGHTS, AIRCRAFT, TOTALS, HOURLY):
            create_topic(address, self.topic(topic), PARTITIONS)

    def topic(self, short: str) -> str:
        return f"{self.name}-{short}"

    def app(self) -> App:
        return build(self.name, self.on_error)

    async def send_planes(self) -> None:
        async with AsyncProducer(bootstrap_servers=self.address) as producer:
            for plane in PLANES:
                value = json.dumps({"maker": maker_of(plane)}).encode()
                topic = self.topic(AIRCRAFT)
                _ = await producer.send(topic, value, plane.encode(), timestamp_ms=0)

    async def send(self, producer: AsyncProducer, flights: Iterable[Flight]) -> None:
        for flight in flights:
            value = json.dumps({"delay": flight.delay}).encode()
            key = flight.plane.encode()
            topic = self.topic(FLIGHTS)
            _ = await producer.send(topic, value, key, timestamp_ms=flight.timestamp)
            self.sent.append(flight)

    async def send_bad(self, key: bytes = b"N000") -> None:
        async with AsyncProducer(bootstrap_servers=self.address) as producer:
            stamp = self.sent[-1].timestamp
            _ = await producer.send(self.topic(FLIGHTS), b"not JSON", key, timestamp_ms=stamp)

    async def read(
        self, topic: str, is_enough: Callable[[dict[Any, list[Any]]], bool]
    ) -> dict[Any, list[Any]]:
        """Return all values of each key of an output, once there are enough."""
        found: dict[Any, list[Any]] = {}
        parts = [TopicPartition(self.topic(topic), number) for number in range(PARTITIONS)]
        consumer = AsyncConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest")
        async with consumer, in_time(lambda: found):
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            while not is_enough(found):
                for records in (await consumer.poll(1_000)).values():
                    for record in records:
                        value = int.from_bytes(record.value, "big", signed=True)
                        found.setdefault(place_of(topic, record.key), []).append(value)
        return found

    async def ends(self, topic: str, *, is_beginning: bool = False) -> dict[TopicPartition, int]:
        """Return the ends, or the beginnings, of partitions that have had records."""
        parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        async with AsyncConsumer(bootstrap_servers=self.address) as consumer:
            ask = consumer.beginning_offsets if is_beginning else consumer.end_offsets
            return {place: offset for place, offset in (await ask(parts)).items() if offset}

    async def results(self) -> None:
        """Wait until totals and counts have come to those of the model."""
        totals, hourly = model(self.sent)

        def are_there(found: dict[Any, list[Any]], wanted: Mapping[Any, int]) -> bool:
            return all(found.get(key, [0])[-1] >= value for key, value in wanted.items())

        await self.read(TOTALS, lambda found: are_there(found, totals))
        await self.read(HOURLY, lambda found: are_there(found, hourly))

    async def check_exact(self) -> None:
        """The outputs are those of the model, each step once."""
        await self.results()
        totals, hourly = model(self.sent)
        found = await self.read(TOTALS, lambda _: sum(map(len, _.values())) >= len(self.sent))
        assert {key: values[-1] for key, values in found.items()} == totals
        assert sum(map(len, found.values())) == len(self.sent)
        counts = await self.read(HOURLY, lambda _: sum(map(len, _.values())) >= len(self.sent))
        assert counts == {key: [*range(1, count + 1)] for key, count in hourly.items()}


def place_of(topic: str, key: bytes) -> object:
    """Return a key of an output as the model has it."""
    if topic == TOTALS:
        return key.decode()
    return key[:-8].decode(), int.from_bytes(key[-8:], "big")


async def plus(total: int, flight: dict[str, int]) -> int:
    """Add; a coroutine function, as any function may be."""
    await asyncio.sleep(0)
    return total + flight["delay"]


def build(name: str, on_error: OnError = "stop") -> App:
    """Return the program: a fold, and a join with windows behind a repartition topic."""
    app = App(name, on_error=on_error)
    flights = app.topic(f"{name}-{FLIGHTS}", key=str, value=JSON)
    aircraft = app.topic(f"{name}-{AIRCRAFT}", key=str, value=JSON).table(name="aircraft")
    flights.aggregate(int, plus, value=int, name="total").to(f"{name}-{TOTALS}")
    makers = flights.join(aircraft, lambda _, plane: plane["maker"], value=str)
    by_maker = makers.key_by(lambda _, maker: maker, key=str, name="by-maker")
    by_maker.window(WINDOW_MS, grace_ms=GRACE_MS).count(name="flights").to(f"{name}-{HOURLY}")
    return app

"""Batches and their order, without a broker: a small model plays the broker's rules."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.producer._deliveries import Delivery
from kohort.client.producer._open_batches import OpenBatches
from kohort.client.producer.accumulator import Accumulator
from kohort.client.producer.batch import Batch, Identity
from kohort.errors import KafkaError, LocalProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import Compression, RecordBatchBuilder, decode_records, parse_header

HERE = TopicPartition("t", 0)
THERE = TopicPartition("t", 1)
# The size of a record with a value of four bytes.
SIZE = 34


class Opened(OpenBatches):
    """Open batches with a manual clock, and a count of their wake-ups."""

    def __init__(self, **settings: int) -> None:
        self.now = 0
        self.news = 0
        super().__init__(
            Batch,
            lambda: self.now,
            self.told,
            batch_size=settings.get("batch_size", 200),
            largest_batch=settings.get("largest_batch", 200),
            linger_ms=5,
            buffer_memory=settings.get("buffer_memory", 10**6),
            largest_record=10**6,
        )
        self.set_partitions("t", 2)

    def told(self) -> None:
        self.news += 1
        self.is_notified = False


def add(batches: Opened, number: int, where: TopicPartition = HERE, now: int = 0) -> bool:
    batches.now, before = now, batches.news
    delivery = batches.add(Delivery, where.topic, b"%04d" % number, None, (), where.partition, 0)
    assert delivery is not None
    return batches.news > before


def numbers(batch: Batch) -> list[int]:
    values = [record.value for record in decode_records(batch.encode(Compression.NONE))]
    return [int(value) for value in values if value is not None]


def take(accumulator: Accumulator, now: int = 0) -> list[Batch]:
    requests = accumulator.take(now, lambda _: 1, lambda _: 5, 10**6)
    return [batch for batches in requests.values() for batch in batches]


def test_the_first_record_and_a_full_batch_are_news() -> None:
    batches = Opened()
    news = [add(batches, number) for number in range(20)]
    assert news[0]
    sealed = list(batches.sealed)
    assert sum(news) == 1 + len(sealed)
    assert [n for batch in sealed for n in numbers(batch)] == list(
        range(sum(len(numbers(batch)) for batch in sealed))
    )
    assert all(batch.builder.size <= 200 for batch in sealed)


def test_a_batch_lingers_from_its_first_record_on() -> None:
    batches = Opened()
    add(batches, 1, HERE, now=10)
    add(batches, 2, THERE, now=12)
    assert batches.seal_due(14) == 15
    assert not batches.sealed
    assert batches.seal_due(15) == 17
    assert [batch.partition for batch in batches.sealed] == [HERE]
    assert batches.seal_due(17) is None


def test_without_hurry_a_batch_grows() -> None:
    batches = Opened(largest_batch=2000)
    batches.is_behind = True
    for number in range(25):
        add(batches, number)
    assert not batches.sealed
    batches.is_behind = False
    add(batches, 25)
    assert [numbers(batch) for batch in batches.sealed] == [list(range(25))]


@given(
    st.lists(st.binary(max_size=50)),
    st.lists(st.tuples(st.text(max_size=9), st.binary())) | st.none(),
)
def test_a_record_takes_no_more_than_its_size(
    values: list[bytes], headers: list[tuple[str, bytes]] | None
) -> None:
    for value in values:
        batches = Opened(batch_size=10**6)
        assert batches.add(Delivery, "t", value, value, headers, 0, 2**60) is not None
        batches.seal_all()
        size = batches.size_of(value, value, headers)
        assert batches.added_bytes == batches.sealed[0].reserved == size
        assert batches.sealed[0].builder.size <= size


def test_memory_is_bounded_until_it_is_released() -> None:
    batches = Opened(buffer_memory=3 * SIZE)
    taken = [batches.add(Delivery, "t", b"%04d" % n, None, (), 0, 0) for n in range(4)]
    assert [each is not None for each in taken] == [True, True, True, False]
    assert not batches.has_room(SIZE)
    batches.released_bytes += SIZE
    assert batches.has_room(SIZE)
    add(batches, 4)
    with pytest.raises(KafkaError, match=rf"MESSAGE_TOO_LARGE: a record of 130 bytes.*{3 * SIZE}"):
        batches.add(Delivery, "t", bytes(100), None, (), 0, 0)


def test_a_topic_that_goes_and_comes_back_keeps_its_order() -> None:
    batches = Opened()
    add(batches, 1)
    batches.set_partitions("t", 0)
    assert batches.add(Delivery, "t", b"2", None, (), 0, 0) is None
    batches.set_partitions("t", 3)
    add(batches, 3)
    batches.seal_all()
    assert [numbers(batch) for batch in batches.sealed] == [[1, 3]]


def test_after_the_end_nothing_is_added() -> None:
    batches = Opened()
    batches.fatal = LocalProtocolError("the end")
    with pytest.raises(LocalProtocolError, match="the end"):
        add(batches, 1)


def test_a_complete_batch_comes_behind_the_records_before_it() -> None:
    batches = Opened()
    add(batches, 1)
    builder = RecordBatchBuilder()
    builder.append(0, None, b"0002")
    assert batches.add_batch(Batch(HERE, 0, builder), 100)
    add(batches, 3)
    batches.seal_all()
    assert [numbers(batch) for batch in batches.sealed] == [[1], [2], [3]]
    assert not batches.add_batch(Batch(HERE, 0, builder), 10**6)
    assert not batches.add_batch(Batch(TopicPartition("t", 9), 0, builder), 1)


def test_at_most_so_many_of_a_partition_are_in_flight() -> None:
    accumulator = filled(9, max_in_flight=5)
    (first,) = [batch for _ in range(9) for batch in take(accumulator)]
    accumulator.done(first)  # only now does the broker know the producer
    taken = [batch for _ in range(9) for batch in take(accumulator)]
    assert [numbers(batch) for batch in taken] == [[1], [2], [3], [4], [5]]
    accumulator.done(taken[0])
    assert [numbers(batch) for batch in take(accumulator)] == [[6]]


def filled(count: int, max_in_flight: int = 5, each: int = 1) -> Accumulator:
    """An accumulator with batches of these numbers of records."""
    batches = Opened(batch_size=1 + 11 * (each - 1), largest_batch=1)
    for number in range(count):
        add(batches, number)
    batches.seal_all()
    accumulator = Accumulator(max_in_flight=max_in_flight, delivery_timeout_ms=1000)
    accumulator.identity = Identity(7, 0)
    for batch in batches.sealed:
        accumulator.add(batch)
    return accumulator


def test_each_partition_has_its_turn_where_a_request_has_no_room_for_all() -> None:
    """A partition with constant new records must not delay others until they expire."""
    accumulator = Accumulator()
    partitions = [TopicPartition("t", number) for number in range(3)]

    def add(partition: TopicPartition) -> None:
        builder = RecordBatchBuilder()
        builder.append(0, None, b"value")
        accumulator.add(Batch(partition, 0, builder))

    for partition in partitions:
        add(partition)
        add(partition)
    taken = []
    for _ in range(6):
        ((batch,),) = accumulator.take(0, lambda _: 1, lambda _: 5, 1).values()
        accumulator.done(batch)
        taken.append(batch.partition)
        add(batch.partition)
    assert taken == [*partitions, *partitions]


def test_a_batch_waits_for_the_end_of_a_pause_that_its_broker_asked_for() -> None:
    accumulator = Accumulator(max_in_flight=5, delivery_timeout_ms=1_000)
    builder = RecordBatchBuilder()
    builder.append(0, None, b"value")
    accumulator.add(Batch(HERE, 0, builder))

    def taken(now: int) -> dict[int, list[Batch]]:
        return accumulator.take(
            now, lambda _: 1, lambda _: 5, 10**6, paused_until=lambda node: 300 * node
        )

    assert (taken(0), accumulator.next_due(0)) == ({}, 300)
    assert (taken(299), accumulator.next_due(299)) == ({}, 300)
    assert len(taken(300)[1]) == 1


def test_what_waits_too_long_is_given_back() -> None:
    accumulator = filled(3)
    take(accumulator)
    assert accumulator.next_due(0) == 1000
    assert [numbers(batch) for batch in accumulator.expired(1000)] == [[1], [2]]
    assert [numbers(batch) for batch in accumulator.undone()] == [[0]]


def test_a_batch_carries_its_place_in_the_brokers_book() -> None:
    (batch,) = take(filled(1))
    payload = batch.encode(Compression.NONE)
    header = parse_header(payload)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
    assert [record.value for record in decode_records(payload)] == [b"0000"]


class Broker:
    """Kafka's rule for one idempotent producer: the next number, a known one, or a refusal."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epoch = 0
        self.written: set[int] = set()
        self.next_sequence = -1  # it accepts a producer's first batch with any number

    def has(self, batch: Batch) -> bool:
        return not self.written.isdisjoint(numbers(batch))

    def append(self, batch: Batch) -> str:
        assert batch.numbering is not None
        epoch, sequence = batch.numbering.epoch, batch.numbering.sequence
        if epoch < self.epoch:
            return "fenced"
        if epoch > self.epoch:
            if sequence:
                return "out of order"
            self.epoch, self.next_sequence = epoch, 0
        if self.next_sequence < 0:
            self.next_sequence = sequence
        if sequence < self.next_sequence:
            return "ok"  # a duplicate, which it does not write again
        if sequence > self.next_sequence:
            return "out of order"
        self.log += numbers(batch)
        self.written.update(numbers(batch))
        self.next_sequence += batch.builder.count
        return "ok"


FATES = st.sampled_from(
    ["arrives", "too large", "answer lost", "request lost", "refused", "given up"]
)


@given(st.integers(1, 12), st.integers(1, 4), st.lists(FATES, max_size=40))
def test_nothing_is_twice_in_the_log_nor_out_of_order(
    count: int, each: int, fates: list[str]
) -> None:
    """Batches in flight meet any fate; in the end, all that were not given up are written once."""
    accumulator, broker = filled(count, each=each), Broker()
    failed: set[int] = set()
    left = iter(fates)
    for _ in range(10 * count + len(fates)):
        flying = [batch for _ in range(5) for batch in take(accumulator)]
        for batch in flying:
            meet(accumulator, broker, batch, next(left, "arrives"), failed)
    assert not accumulator.undone()
    assert broker.log == sorted(set(broker.log))
    assert set(broker.log) | failed == set(range(count))


def meet(
    accumulator: Accumulator, broker: Broker, batch: Batch, fate: str, failed: set[int]
) -> None:
    """Treat a batch like the sender does for this outcome."""
    if fate == "refused":  # because of its contents: never written
        failed.update(numbers(batch))
        accumulator.gave_up(batch)
        return
    if fate == "too large" and batch.builder.count > 1 and not broker.has(batch):
        accumulator.divide(batch, batch.parts(batch.builder.size // 2))
        return
    if fate == "request lost":
        accumulator.again(batch, 0)
        return
    answer = broker.append(batch)  # a batch that is too large later was written before
    assert answer != "fenced"
    if fate == "given up":  # no answer came in time; it may have been written
        failed.update(numbers(batch))
        accumulator.gave_up(batch)
    elif fate == "answer lost":
        accumulator.again(batch, 0)
    elif answer == "ok":
        accumulator.done(batch)
    elif accumulator.is_early(batch):
        accumulator.again(batch, 0)
    else:
        assert accumulator.renumber(batch)


OLD, NEW = UUID(int=1), UUID(int=2)


def take_for(accumulator: Accumulator, topic_id: UUID | None) -> list[Batch]:
    requests = accumulator.take(0, lambda _: 1, lambda _: 5, 10**6, lambda _: topic_id)
    return [batch for batches in requests.values() for batch in batches]


def test_a_topic_made_anew_waits_for_what_left_for_the_former_one() -> None:
    """Sent batches are refused, and must not be resent behind those for the new topic."""
    batches, accumulator = Opened(), Accumulator()
    accumulator.identity = Identity(7, 0)
    for number in range(4):
        add(batches, number)
        batches.seal_all()
        accumulator.add(batches.sealed.popleft())
    first = take_for(accumulator, OLD)
    accumulator.done(first[0])
    second, third = take_for(accumulator, OLD), take_for(accumulator, OLD)
    assert [each.topic_id for each in (*second, *third)] == [OLD, OLD]
    assert take_for(accumulator, NEW) == []
    accumulator.again(third[0], 0)
    accumulator.again(second[0], 0)
    order = []
    for _ in range(3):
        (batch,) = take_for(accumulator, NEW)
        order.append((numbers(batch), batch.topic_id))
        accumulator.done(batch)
    assert order == [([1], NEW), ([2], NEW), ([3], NEW)]


def test_the_first_batch_for_a_topic_made_anew_goes_alone() -> None:
    batches, accumulator = Opened(), Accumulator()
    accumulator.identity = Identity(7, 0)
    for number in range(3):
        add(batches, number)
        batches.seal_all()
        accumulator.add(batches.sealed.popleft())
    accumulator.done(take_for(accumulator, OLD)[0])
    (batch,) = take_for(accumulator, NEW)
    assert take_for(accumulator, NEW) == []
    accumulator.done(batch)
    assert len(take_for(accumulator, NEW)) == 1


def test_a_transaction_numbers_nothing_anew() -> None:
    """The coordinator assigns the epoch; batches behind a gap are aborted."""
    batches, accumulator = Opened(), Accumulator(renumbers=False)
    accumulator.identity = Identity(7, 3)
    for number in range(2):
        add(batches, number)
        batches.seal_all()
        accumulator.add(batches.sealed.popleft())
    (first,) = take(accumulator)
    accumulator.gave_up(first)
    (second,) = take(accumulator)
    assert second.numbering is not None
    assert (second.numbering.epoch, second.numbering.sequence) == (3, 1)
    assert not accumulator.renumber(second)


def test_the_next_transaction_begins_with_new_numbers_and_forgets_late_answers() -> None:
    batches, accumulator = Opened(), Accumulator(renumbers=False)
    late: list[Batch] = []
    for epoch in (3, 4):
        accumulator.renew(Identity(7, epoch))
        add(batches, epoch)
        batches.seal_all()
        accumulator.add(batches.sealed.popleft())
        (batch,) = take(accumulator)
        assert batch.numbering is not None
        assert (batch.numbering.epoch, batch.numbering.sequence) == (epoch, 0)
        accumulator.gave_up(batch)  # its answer may still arrive
        late.append(batch)
    accumulator.renew(Identity(7, 5))
    assert not any(map(accumulator.is_in_flight, late))

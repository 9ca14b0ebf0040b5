"""Batches and their order, without a broker: the broker's rules are played by a small model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.client.accumulator import Accumulator, Batch, Identity, OpenBatches, record_size
from kohort.types import TopicPartition
from kohort.wire.records import Compression, decode_records, parse_header

HERE = TopicPartition("t", 0)
THERE = TopicPartition("t", 1)


def opened(**settings: int) -> OpenBatches[int]:
    return OpenBatches(**{"batch_size": 200, "largest_batch": 200, "linger_ms": 5, **settings})


def add(batches: OpenBatches[int], number: int, where: TopicPartition = HERE, now: int = 0) -> bool:
    value = b"%04d" % number
    return batches.append(where, 0, None, value, (), number, record_size(None, value, ()), now)


def numbers(batch: Batch[int]) -> list[int]:
    return [number for number, _ in batch.deliveries]


def take(accumulator: Accumulator[int], now: int = 0) -> list[Batch[int]]:
    requests = accumulator.take(now, lambda _: 1, lambda _: 5, 10**6)
    return [batch for batches in requests.values() for batch in batches]


def test_the_first_record_and_a_full_batch_are_news() -> None:
    batches = opened()
    news = [add(batches, number) for number in range(20)]
    assert news[0]
    sealed = list(batches.sealed)
    assert sum(news) == 1 + len(sealed)
    assert [n for batch in sealed for n in numbers(batch)] == list(
        range(sum(len(numbers(batch)) for batch in sealed))
    )
    assert all(batch.builder.size <= 200 for batch in sealed)


def test_a_batch_lingers_from_its_first_record_on() -> None:
    batches = opened()
    add(batches, 1, HERE, now=10)
    add(batches, 2, THERE, now=12)
    assert batches.seal_due(14) == 15
    assert not batches.sealed
    assert batches.seal_due(15) == 17
    assert [batch.partition for batch in batches.sealed] == [HERE]
    assert batches.seal_due(17) is None


def test_without_hurry_a_batch_grows() -> None:
    batches = opened(largest_batch=2000)
    for number in range(25):
        batches.append(HERE, 0, None, b"v", (), number, 40, 0, hurried=False)
    assert not batches.sealed
    add(batches, 25)
    assert [numbers(batch) for batch in batches.sealed] == [list(range(25))]


@given(st.lists(st.binary(max_size=50)), st.lists(st.tuples(st.text(max_size=9), st.binary())))
def test_a_record_takes_no_more_than_its_size(
    values: list[bytes], headers: list[tuple[str, bytes]]
) -> None:
    for value in values:
        batches = opened(batch_size=10**6)
        size = record_size(value, value, headers)
        batches.append(HERE, 2**60, value, value, headers, 0, size, 0)
        batches.seal_all()
        assert batches.sealed[0].builder.size <= size


def test_at_most_so_many_of_a_partition_are_in_flight() -> None:
    accumulator = filled(9, max_in_flight=5)
    (first,) = [batch for _ in range(9) for batch in take(accumulator)]
    accumulator.done(first)  # only now does the broker know the producer
    taken = [batch for _ in range(9) for batch in take(accumulator)]
    assert [numbers(batch) for batch in taken] == [[1], [2], [3], [4], [5]]
    accumulator.done(taken[0])
    assert [numbers(batch) for batch in take(accumulator)] == [[6]]


def filled(count: int, max_in_flight: int = 5) -> Accumulator[int]:
    """An accumulator with batches of one record each."""
    batches = opened(batch_size=1)
    for number in range(count):
        add(batches, number)
    accumulator = Accumulator[int](max_in_flight=max_in_flight, delivery_timeout_ms=1000)
    accumulator.identity = Identity(7, 0)
    for batch in batches.sealed:
        accumulator.add(batch)
    return accumulator


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
        self.next_sequence = -1  # it takes the first batch of a producer, whatever its number

    def append(self, batch: Batch[int]) -> str:
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
        self.next_sequence += batch.builder.count
        return "ok"


FATES = st.sampled_from(["arrives", "answer lost", "request lost", "refused", "given up"])


@given(st.integers(1, 12), st.lists(FATES, max_size=40))
def test_nothing_is_twice_in_the_log_nor_out_of_order(count: int, fates: list[str]) -> None:
    """Batches in flight meet any fate; in the end all that was not given up is there, once."""
    accumulator, broker = filled(count), Broker()
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
    accumulator: Accumulator[int], broker: Broker, batch: Batch[int], fate: str, failed: set[int]
) -> None:
    """Do to a batch what the sender does when it meets this fate."""
    if fate == "refused":  # for what is in it: never written
        failed.update(numbers(batch))
        accumulator.gave_up(batch)
        return
    if fate == "request lost":
        accumulator.again(batch, 0)
        return
    answer = broker.append(batch)
    assert answer != "fenced"
    if fate == "given up":  # in time no answer came; it may have been written
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

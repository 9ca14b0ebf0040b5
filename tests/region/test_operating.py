"""The shell of an operator, step by step: which records it takes for which read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from immutables import Map

from kohort.client import ConsumerRecord
from kohort.errors import BrokerUnavailableError
from kohort.region import KeyedState, OperatorId, RegionOrderError, RegionPartition, SourceError
from kohort.region import operating as operating_module
from kohort.region import settings as region_settings
from kohort.region.controlling import Controlling
from kohort.region.log.control import ControlLog
from kohort.region.machines.events import Delivered, Discarded, OperatorEffects, Read, Tick
from kohort.region.machines.reader import Reader
from kohort.region.machines.state import Partition, RegionState
from kohort.region.operating import Operating
from kohort.region.starts import StartPosition
from kohort.region.states import StateTopic
from kohort.region.work import Batch, Discard, Inbox, Load, Work
from kohort.types import TopicPartition
from kohort.wire.records.record import Headers

PLACE = TopicPartition("t", 0)
PARTITION = RegionPartition("t", "an-id", 0)


class Consumer:
    """Notes what is done to a consumer."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self._internals = SimpleNamespace(core=SimpleNamespace(cluster=Cluster("an-id")))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({PLACE})

    def pause(self, *places: TopicPartition) -> None:
        self.done += [("pause", each) for each in places]

    def resume(self, *places: TopicPartition) -> None:
        self.done += [("resume", each) for each in places]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.done.append(("seek", place, offset))


class States:
    """Loads a state when it is told to."""

    def __init__(self) -> None:
        self.may_load = asyncio.Event()

    async def load(self, _partition: RegionPartition, _reference: str) -> bytes:
        await self.may_load.wait()
        return b""


def on_a_loop(play: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await play()

    asyncio.run(main())


def operating(consumer: Consumer, states: States, inbox: Inbox) -> Operating:
    machine = SimpleNamespace(config=SimpleNamespace(id=OperatorId("one", "a")))
    control = SimpleNamespace(reader=Reader())
    made = Operating(
        cast("Any", machine),
        cast("Any", control),
        cast("Any", states),
        cast("Any", consumer),
        inbox,
        StartPosition("earliest"),
    )
    made._places[PLACE] = PARTITION
    return made


def record(offset: int, value: bytes = b"1", headers: Headers = ()) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, None, value, headers, -1)


def test_a_queue_that_is_not_full_any_more_starts_no_read_that_is_still_prepared() -> None:
    """The consumer would hand out records from where it was before, under the new read."""

    async def play() -> None:
        consumer, states, inbox = Consumer(), States(), Inbox(10)
        one = operating(consumer, states, inbox)
        inbox.put(Batch(RegionPartition("t", "an-id", 1), 1, [record(each) for each in range(10)]))
        one._press_back()
        one._do(OperatorEffects(session=None, reads=(Read(PARTITION, 116, "", 7),)))
        inbox.take()
        one._press_back()
        assert consumer.done == []
        states.may_load.set()
        await asyncio.gather(*one._tasks)
        assert consumer.done == [("seek", PLACE, 116), ("resume", PLACE)]
        assert inbox.take() == Load(PARTITION, 7, 116, b"")
        await one.stop()

    on_a_loop(play)


@pytest.mark.parametrize("otherwise", [{"discard": 2}, {"stops": frozenset({PARTITION})}])
def test_a_read_that_is_told_otherwise_meanwhile_never_begins(otherwise: dict[str, Any]) -> None:
    async def play() -> None:
        consumer, states, inbox = Consumer(), States(), Inbox(10)
        one = operating(consumer, states, inbox)
        one._do(OperatorEffects(session=None, reads=(Read(PARTITION, 116, "", 7),)))
        one._do(OperatorEffects(session=None, **otherwise))
        consumer.done.clear()
        states.may_load.set()
        await asyncio.gather(*one._tasks)
        assert consumer.done == []

    on_a_loop(play)


def test_records_that_come_a_second_time_are_refused_by_name() -> None:
    work = Work(lambda _: None, cast("Any", lambda _: None))
    work.obey(Load(PARTITION, 7, 116, b""))
    assert work.admit(Batch(PARTITION, 6, [record(0)])) is None
    assert work.admit(Batch(PARTITION, 7, [record(116)])) == KeyedState()
    with pytest.raises(RegionOrderError, match="t-0 are repeated: offset 66 after 115"):
        work.admit(Batch(PARTITION, 7, [record(66)]))


class Producer:
    """Notes the keys that it is given; each answer comes when it may."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.may_answer = asyncio.Event()

    async def send(self, _topic: str, _value: None, key: bytes, **_: int) -> Awaitable[None]:
        self.keys.append(key)

        async def answered() -> None:
            await self.may_answer.wait()

        return answered()


def at_checkpoint(completed: int, reference: str) -> RegionState:
    known = Partition(position=completed, state=reference)
    return RegionState(completed=completed, partitions=Map({PARTITION: known}))


def topic_with(stored: dict[int, tuple[int, bytes]], producer: Producer) -> StateTopic:
    topic = StateTopic("r", {})
    topic._stored[PARTITION] = stored
    topic._producer = cast("Any", producer)
    return topic


def test_two_checkpoints_that_follow_each_other_remove_each_state_once() -> None:
    """The second one comes while the first one still waits for the broker."""

    async def play() -> None:
        producer = Producer()
        topic = topic_with({each: (each, b"%d" % each) for each in range(1, 5)}, producer)
        first = asyncio.create_task(topic.forget(at_checkpoint(3, "3:1:x")))
        await asyncio.sleep(0)
        second = asyncio.create_task(topic.forget(at_checkpoint(4, "4:1:x")))
        await asyncio.sleep(0)
        producer.may_answer.set()
        await asyncio.gather(first, second)
        assert sorted(producer.keys) == [b"1", b"2", b"3"]
        assert topic._stored[PARTITION] == {4: (4, b"4")}

    on_a_loop(play)


def test_slow_commits_for_display_hold_up_nothing_and_do_not_pile_up() -> None:
    """States are removed at once; of the checkpoints that come meanwhile the last one is shown."""

    async def play() -> None:
        committed: list[asyncio.Future[None]] = []

        def commit(_offsets: object) -> asyncio.Future[None]:
            committed.append(asyncio.get_running_loop().create_future())
            return committed[-1]

        producer = Producer()
        producer.may_answer.set()
        topic = topic_with({each: (each, b"%d" % each) for each in range(1, 5)}, producer)
        one = operating(cast("Any", SimpleNamespace(commit=commit)), cast("Any", topic), Inbox(10))
        monkey = cast("Any", one)
        monkey.tell = lambda _: None
        for each in (2, 3, 4):
            one.folded(at_checkpoint(each, f"{each}:1:x"))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(producer.keys) == [b"1", b"2", b"3"]
        assert len(committed) == 1
        committed[0].set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        committed[1].set_result(None)
        await asyncio.gather(*one._tasks)
        assert len(committed) == 2
        await one.stop()

    on_a_loop(play)


def test_an_operator_that_has_stopped_holds_no_revocation() -> None:
    """Its consumer leaves the group then, and nobody folds the log by which it would be let go."""

    async def play() -> None:
        one = operating(Consumer(), States(), Inbox(10))
        told: list[object] = []

        def decide(event: object, _now: int) -> OperatorEffects:
            told.append(event)
            return OperatorEffects(session=None)

        machine = cast("Any", one).machine
        machine.decide, machine.install = decide, lambda _: None
        held = asyncio.create_task(one.on_partitions_revoked(frozenset({PLACE})))
        await asyncio.sleep(0)
        assert told
        assert not held.done()
        await one.stop()
        later = one.on_partitions_revoked(frozenset({PLACE}))
        _, pending = await asyncio.wait([held, asyncio.create_task(later)], timeout=20)
        assert not pending

    on_a_loop(play)


def test_many_records_of_a_partition_are_given_to_the_function_in_parts() -> None:
    inbox = Inbox(10_000, batch_max=4)
    inbox.put_records(PARTITION, 1, [record(each) for each in range(10)])
    parts = [inbox.take(0) for _ in range(4)]
    assert [len(each.records) for each in parts if isinstance(each, Batch)] == [4, 4, 2]
    assert (inbox.pending, inbox.polled_max) == (0, 16)


@pytest.mark.parametrize("size", [0, 10])
def test_a22_a_queue_is_full_by_records_or_by_bytes(size: int) -> None:
    inbox = Inbox(4, 30)
    seen = []
    for number in range(4):
        inbox.put(Batch(PARTITION, 1, [record(number, b"x" * size, (("h", b"12345"),))]))
        seen.append(inbox.is_full)
    assert seen == ([False, False, False, True] if size == 0 else [False, True, True, True])
    for _ in range(3):
        inbox.take()
    assert not inbox.is_full
    inbox.put(Discard(2))
    assert (inbox.pending, inbox.is_full) == (0, False)


class Cluster:
    """Knows the id of a topic, or does not."""

    def __init__(self, topic_id: str | None) -> None:
        self.metadata = SimpleNamespace(topic_id=lambda _: topic_id)
        self.asked = 0

    def request_refresh(self) -> None:
        self.asked += 1


def test_another_topic_of_the_name_is_not_read_from_the_former_position() -> None:
    async def play() -> None:
        consumer, states, inbox = Consumer(), States(), Inbox(10)
        consumer._internals.core.cluster = Cluster("another-id")
        one = operating(consumer, states, inbox)
        one._do(OperatorEffects(session=None, reads=(Read(PARTITION, 116, "", 7),)))
        states.may_load.set()
        with pytest.raises(SourceError, match="its id was an-id and is now another-id"):
            await one.closed
        assert consumer.done == []
        await one.stop()

    on_a_loop(play)


def test_records_of_another_topic_of_the_name_are_not_processed() -> None:
    """The topic was made anew between the seek and the first fetch."""

    async def play() -> None:
        consumer, inbox = Consumer(), Inbox(10)
        one = operating(consumer, States(), inbox)
        one._reads[PARTITION] = 7

        async def poll(_ms: int, _most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
            consumer._internals.core.cluster = Cluster("another-id")
            return {PLACE: [record(116)]}

        cast("Any", consumer).poll = poll
        with pytest.raises(SourceError, match="t was deleted and recreated"):
            await one.poll()
        assert inbox.pending == 0

    on_a_loop(play)


def test_a_topic_that_the_brokers_never_know_is_waited_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operating_module, "_APPEARS_S", 0.1)

    async def play() -> None:
        consumer = Consumer()
        consumer._internals.core.cluster = cluster = Cluster(None)
        one = operating(consumer, States(), Inbox(10))
        assigned = asyncio.create_task(one.on_partitions_assigned(frozenset({PLACE})))
        done, _ = await asyncio.wait([assigned], timeout=20)
        assert done, "it asks for ever"
        with pytest.raises(SourceError, match="the group assigned partitions of t, but the"):
            assigned.result()
        assert cluster.asked > 0

    on_a_loop(play)


class Unreachable:
    """A consumer that has not reached a broker yet: its first polls say so."""

    def __init__(self, polls: int, may_end: asyncio.Event) -> None:
        self.polls = polls
        self.may_end = may_end

    async def _fail(self, *_: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        await asyncio.sleep(0)
        self.polls -= 1
        if self.polls >= 0:
            raise BrokerUnavailableError("127.0.0.1:1: refused")
        self.may_end.set()
        return {TopicPartition("__kohort-region-r-state", 0): [state_record()]}

    poll = poll_membership = _fail

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


def state_record() -> ConsumerRecord:
    return ConsumerRecord("__kohort-region-r-state", 0, 5, 0, 0, b"k", b"{}", (), -1)


def polls_of(consumer: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Everything in a process of a region that polls."""
    topic = StateTopic("r", {})
    topic._consumer = consumer
    control = ControlLog("r", {})
    choosing = Controlling(*cast("tuple[Any, ...]", (None, control, None, {}, "g")))
    one = operating(consumer, States(), Inbox(10))
    member = operating(consumer, States(), Inbox(10))
    member._fetches = False
    return {
        "states": lambda: topic._read(PARTITION, 5),
        "control": lambda: control._poll(consumer),
        "chooser": lambda: choosing._choose(consumer),
        "operator": one.poll,
        "member": member.poll,
    }


@pytest.mark.parametrize("which", ["states", "control", "chooser", "operator", "member"])
@pytest.mark.parametrize("is_left", [True, False])
def test_a_broker_that_is_not_reached_yet_is_waited_for(
    which: str, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(StateTopic, "_check_reaches", nothing)
    monkeypatch.setattr(region_settings, "_REACH_S", 60.0 if is_left else -1.0)

    async def play() -> None:
        reached = asyncio.Event()
        poll = polls_of(Unreachable(3, reached))[which]

        async def again() -> None:
            while True:
                await poll()

        polling = asyncio.create_task(again())
        waiting = asyncio.create_task(reached.wait())
        await asyncio.wait([polling, waiting], timeout=20, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        polling.cancel()
        (end,) = await asyncio.gather(polling, return_exceptions=True)
        assert reached.is_set() == is_left
        if not is_left:
            assert isinstance(end, BrokerUnavailableError)

    on_a_loop(play)


def test_a60_after_a_reset_polls_are_slow_until_something_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        consumer, inbox, steps = Consumer(), Inbox(10), list[str]()
        one = operating(consumer, States(), inbox)
        machine = cast("Any", one).machine
        machine.decide = lambda *_: OperatorEffects(session=None)
        machine.install = lambda _: None
        polls = asyncio.Queue[None]()

        async def poll(_ms: int, _most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
            steps.append("poll")
            await polls.get()
            return {}

        async def wait(_s: float) -> None:
            steps.append("wait")

        cast("Any", consumer).poll = poll
        monkeypatch.setattr(operating_module, "_wait", wait)
        one._do(OperatorEffects(session=None, discard=2))
        polling = asyncio.create_task(one.poll())
        polls.put_nowait(None)
        await settled(lambda: steps.count("poll") == 2)
        one._reported(Delivered(PARTITION, 1, 7))
        for _ in range(2):
            polls.put_nowait(None)
        await settled(lambda: steps.count("poll") == 4)
        assert steps == ["wait", "poll", "wait", "poll", "poll", "poll"]
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await one.stop()

    on_a_loop(play)


async def settled(holds: Callable[[], bool]) -> None:
    """Let tasks of the loop run until it is so."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  # whatever it is
            await asyncio.sleep(0)


class Broken:
    """A machine with a fault."""

    config = SimpleNamespace(id=OperatorId("one", "a"), incarnation="a")

    def decide(self, *_: object) -> None:
        raise ZeroDivisionError("in the machine")


def test_a_fault_in_a_timer_or_a_call_of_another_thread_ends_the_operator() -> None:
    """The loop would write it to its log alone, and the operator would do nothing more."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        for call in (
            lambda one: one._set_timer(0),
            lambda one: one.report(Discarded(2)),
            lambda one: loop.call_soon_threadsafe(one.close),
        ):
            one = operating(Consumer(), States(), Inbox(10))
            cast("Any", one).machine = Broken()
            call(one)
            await asyncio.wait([one.closed], timeout=20)
            with pytest.raises(ZeroDivisionError, match="in the machine"):
                one.closed.result()
            await one.stop()

    on_a_loop(play)


def test_a_fault_in_a_timer_ends_the_candidate() -> None:
    async def play() -> None:
        control = SimpleNamespace(region="r", topic="t")
        one = Controlling(*cast("tuple[Any, ...]", (Broken(), control, None, {}, "g")))
        one._loop.call_soon(one.tell, Tick())
        await asyncio.wait([one._failed], timeout=20)
        with pytest.raises(ZeroDivisionError, match="in the machine"):
            one._failed.result()

    on_a_loop(play)

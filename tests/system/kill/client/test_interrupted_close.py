"""The handler of a signal ends `close` by an exception: the member leaves its group even so."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kohort import AdminClient, Consumer, RebalanceListener, TopicPartition
from kohort.errors import LocalProtocolError
from kohort.wire.codec import frame as frames
from tests.broker.processes import eventually
from tests.client.cutting_proxy import CuttingProxy
from tests.system.clients.ours import settings_of

OFFSET_COMMIT, LEAVE_GROUP, CONSUMER_GROUP_HEARTBEAT = 8, 13, 68
PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


class BoomError(Exception):
    """What the handler raises."""


class Interrupting(CuttingProxy):
    """Stands for one broker; interrupts the main thread when a request comes through."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.keys: frozenset[int] = frozenset()

    def answer_itself(self, frame: bytes) -> bytes | None:
        key, _, _ = frames.peek_request(memoryview(frame))
        if key in self.keys:
            self.keys = frozenset()
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGUSR1)
        return None


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[Interrupting]:
    def handler(_number: int, _frame: FrameType | None) -> None:
        raise BoomError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Interrupting(bootstrap) as made:
            yield made
    finally:
        signal.signal(signal.SIGUSR1, before)


def member(proxy: Interrupting, topic: str, protocol: str, **settings: object) -> Consumer:
    """A member of a group that has read some of the records."""
    chosen = PROTOCOLS[protocol] | settings
    given = settings_of(proxy.bootstrap_servers, f"group-of-{topic}", chosen)
    consumer = Consumer(topic, **given)
    eventually(lambda: bool(consumer.poll(200, max_records=5)), "some records are read")
    return consumer


def left(bootstrap: str, topic: str) -> bool:
    """Whether nobody is in the group."""
    group = f"group-of-{topic}"
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return not admin.describe_groups([group])[group].members


def stored(bootstrap: str, topic: str) -> int:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return admin.list_group_offsets(f"group-of-{topic}")[TopicPartition(topic, 0)].offset


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("keys", [{OFFSET_COMMIT}, {LEAVE_GROUP, CONSUMER_GROUP_HEARTBEAT}])
def test_a_second_close_goes_on(
    bootstrap: str,
    proxy: Interrupting,
    topic: str,
    protocol: str,
    keys: set[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = member(proxy, topic, protocol)
    position = consumer.position(TopicPartition(topic, 0))
    caplog.clear()
    proxy.keys = frozenset(keys)
    with pytest.raises(BoomError):
        consumer.close()
    consumer.close()
    assert left(bootstrap, topic)
    assert stored(bootstrap, topic) == position
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_member_leaves_without_a_second_close(
    bootstrap: str, proxy: Interrupting, topic: str, protocol: str
) -> None:
    consumer = member(proxy, topic, protocol)
    proxy.keys = frozenset({OFFSET_COMMIT})
    with pytest.raises(BoomError):
        consumer.close()
    eventually(lambda: left(bootstrap, topic), "the member leaves")
    consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_after_an_interrupted_close_say_what_it_is(
    proxy: Interrupting, topic: str, protocol: str
) -> None:
    consumer = member(proxy, topic, protocol)
    proxy.keys = frozenset({OFFSET_COMMIT})
    with pytest.raises(BoomError):
        consumer.close()
    calls: list[Callable[[], object]] = [
        lambda: consumer.subscribe([topic]),
        consumer.unsubscribe,
        consumer.poll,
    ]
    said = r"^(the client was closed meanwhile|the consumer is closed)$"  # before, or after its end
    try:
        for call in calls:
            with pytest.raises(LocalProtocolError, match=said):
                call()
    finally:
        consumer.close()


class Impatient(RebalanceListener):
    """Is interrupted when it is told to give partitions up."""

    def __init__(self) -> None:
        self.told = 0

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        self.told += 1
        raise KeyboardInterrupt


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_is_interrupted_was_told(
    bootstrap: str, proxy: Interrupting, topic: str, protocol: str
) -> None:
    """Ctrl-C inside of it: the next close does not wait for it, and does not call it again."""
    consumer = member(proxy, topic, protocol, enable_auto_commit=False)
    listener = Impatient()
    consumer.subscribe([topic], listener=listener)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    consumer.close()
    assert listener.told == 1
    assert left(bootstrap, topic)


class Slow(RebalanceListener):
    """Takes its time to give partitions up, as long as the test likes."""

    def __init__(self) -> None:
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        self.is_in.set()
        self.may_go.wait(60)


def test_another_thread_takes_over(bootstrap: str, proxy: Interrupting, topic: str) -> None:
    """One that waits for the close that is interrupted: it closes then."""
    consumer = member(proxy, topic, "eager")
    listener = Slow()
    consumer.subscribe([topic], listener=listener)

    def interrupt() -> None:
        listener.is_in.wait(60)
        waiting.start()
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGUSR1)

    waiting = threading.Thread(target=consumer.close)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(BoomError):
        consumer.close()
    interrupting.join(60)
    waiting.join(60)
    assert not waiting.is_alive()
    assert left(bootstrap, topic)

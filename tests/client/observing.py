"""Observe from outside what a client does with its settings: requests, errors and leaving."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.errors import ConfigError, KohortError
from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.codec.schema import Message
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from kohort.wire.messages.produce import ProduceRequest
from tests.broker.processes import DEADLINE_S
from tests.client.cutting_proxy import CuttingProxy

Client: TypeAlias = Consumer | Producer | AdminClient
Kind: TypeAlias = type[Consumer] | type[Producer] | type[AdminClient]
Settings: TypeAlias = dict[str, Any]
M = TypeVar("M", bound=Message)

# For events that must not happen: watching only briefly misses faults, but reports no false ones.
WATCHED_S = 1.0
HOUR_MS = 3_600_000
FETCH = 1
PLACE = TopicPartition("t", 0)


class Recorder(CuttingProxy):
    """Plays one broker and keeps the requests of clients.

    Attributes:
        requests: The requests, in order.
        client_ids: Client ids of the requests.
        advertised: Host and port of the broker instead of its own.
        damages: Whether fetched records have a value that differs from the produced one.
        held: While clear, answers to Metadata and Produce are held back.
    """

    def __init__(self, broker: str) -> None:
        self.held = threading.Event()
        self.held.set()
        super().__init__(broker, lambda _: not self.held.wait(DEADLINE_S))
        self.requests: list[Message] = []
        self.client_ids: set[str | None] = set()
        self.advertised: tuple[str, int] | None = None
        self.damages = False

    def changed(self, key: int, frame: bytes) -> bytes:
        return frame.replace(b"value 3", b"value ?") if self.damages and key == FETCH else frame

    def __exit__(self, *_: object) -> None:
        self.held.set()
        super().__exit__()

    def answer_itself(self, frame: bytes) -> bytes | None:
        # a request shares its frame's memory: keep a copy, not a view
        received = frames.decode_request(memoryview(bytes(frame)))
        self.requests.append(received.message)
        self.client_ids.add(received.client_id)
        return None

    def asked(self, kind: type[M]) -> list[M]:
        """The requests of one type."""
        return [each for each in tuple(self.requests) if isinstance(each, kind)]

    def _renamed(self, frame: bytes, version: int, number: int) -> bytes:
        self.held.wait(DEADLINE_S)
        renamed = super()._renamed(frame, version, number)
        if self.advertised is None:
            return renamed
        host, port = self.advertised
        response = frames.decode_response(MetadataResponse, version, memoryview(renamed)[4:])
        brokers = tuple(replace(b, host=host, port=port) for b in response.brokers)
        response = replace(response, brokers=brokers)
        return bytes(frames.encode_response(response, version, number))

    def more_than(self, count: int, kind: type[Message]) -> Callable[[], bool]:
        """Returns a check for more requests of one type."""
        return lambda: len(self.asked(kind)) > count


def idle() -> None:
    threading.Event().wait(0.02)


def happens(is_due: bool, condition: Callable[[], bool], step: Callable[[], object] = idle) -> bool:
    """Whether an event happens: expected events get a long time, unexpected ones a short time."""
    end = time.monotonic() + (DEADLINE_S if is_due else WATCHED_S)
    while not condition() and time.monotonic() < end:
        step()
    return condition()


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[None]]]:
    """A server with one action per connection; a list with an entry per connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[None] = []
    clients: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                accepted.append(None)
                clients.append(client)
                answer(client)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", accepted
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in (listener, *clients):
            each.close()


def error_of(call: Callable[[], object]) -> str:
    """The text of a call's exception, empty when it raises none."""
    try:
        call()
    except (KohortError, ValueError, TimeoutError) as error:
        return str(error)
    return ""


@contextmanager
def logged() -> Iterator[Callable[[], str]]:
    """The client's log during the block."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # one line instead of a class
    logger = logging.getLogger("kohort.client")
    logger.addHandler(handler)
    try:
        yield lambda: "\n".join(lines)
    finally:
        logger.removeHandler(handler)


def in_words(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found.group(0)


# ------------------------------------------------------------------- what every client can do

LASTS: dict[Kind, str] = {Producer: "max_block_ms"}


def a_call(client: Client, topic: str = "t") -> object:
    """A call for which the client needs the brokers."""
    if isinstance(client, Consumer):
        return client.end_offsets([TopicPartition(topic, 0)])
    if isinstance(client, Producer):
        return client.send(topic, b"value").result(DEADLINE_S)
    return client.list_offsets({TopicPartition(topic, 0): -1})


def bounded(kind: Kind, timeout_ms: int) -> dict[str, object]:
    """Settings that limit the time of a call."""
    return {LASTS.get(kind, "default_api_timeout_ms"): timeout_ms}


def to_the_leader(client: Client) -> object:
    """A call that the partition's leader or the coordinator must answer."""
    if isinstance(client, Consumer):
        return client.end_offsets([PLACE])
    if isinstance(client, Producer):
        return client.send("t", b"value").result(DEADLINE_S)
    return client.list_group_offsets("g")


def refusal(kind: Kind, settings: dict[str, Any]) -> str | None:
    """Why settings are refused, None when they are not."""
    try:
        kind(**settings).close()
    except ConfigError as error:
        return str(error)
    return None


@contextmanager
def calling(client: Client, call: Callable[[], object]) -> Iterator[None]:
    """Make a call in another thread; it ends when its client is closed, at the end."""
    calls = together(1, lambda: error_of(call))
    next(calls)
    try:
        yield
    finally:
        if isinstance(client, Producer):
            client.close(timeout=0)
        else:
            client.close()
        next(calls, None)


def together(calls: int, call: Callable[[], object]) -> Iterator[None]:
    """Make calls in as many threads; they end when the generator is closed."""
    with ThreadPoolExecutor(calls) as pool:
        done = [pool.submit(call) for _ in range(calls)]
        yield
        for each in done:
            each.result(DEADLINE_S)


def is_short(given: dict[str, Any]) -> bool:
    return HOUR_MS not in given.values()


def often(given: dict[str, Any]) -> int:
    """The number of attempts that tells a short pause from a long one on any machine.

    Pauses of 10 ms that double leave time for 7 attempts in a second and for 13 in a minute, those
    that double up to the default of 1 s for 70 in a minute. Metadata may be asked for by two at
    the same time. After each attempt to connect comes a second one, which asks whether the server
    has TLS.
    """
    if "retry_backoff_max_ms" in given:
        return 200 if is_short(given) else 30
    if "reconnect_backoff_max_ms" in given:
        return 100 if is_short(given) else 40
    return 2


def records_of(requests: list[ProduceRequest]) -> list[bytes]:
    return [
        bytes(part.records or b"")
        for request in requests
        for topic in request.topic_data
        for part in topic.partition_data
    ]


def fetches(recorder: Recorder) -> FetchRequest:
    (first, *_) = recorder.asked(FetchRequest)
    return first


def settings_of(recorder: Recorder, given: Settings) -> Settings:
    return {"bootstrap_servers": recorder.bootstrap_servers, **given}


def refreshes(recorder: Recorder, kind: Kind, given: Settings) -> object:
    base = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 10, **given}
    with closing(kind(**settings_of(recorder, base))) as client:
        a_call(client)
        before = len(recorder.asked(MetadataRequest))
        return happens(is_short(given), recorder.more_than(before + 3, MetadataRequest))


def idles(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether a connection that was idle for a while is used again."""
    with closing(kind(**settings_of(recorder, given))) as client:
        a_call(client)
        before = len(recorder.asked(ApiVersionsRequest))

        def step() -> None:
            threading.Event().wait(0.1)
            a_call(client)

        return happens(is_short(given), recorder.more_than(before, ApiVersionsRequest), step)


def asks_bootstrap(recorder: Recorder, kind: Kind, given: Settings) -> object:
    """Whether the bootstrap servers are asked while a known broker does not answer."""
    base = {"metadata_max_age_ms": 20, **given}
    with closing(kind(**settings_of(recorder, base))) as client:
        a_call(client)
        recorder.held.clear()
        before = len(recorder.asked(ApiVersionsRequest))
        found = happens(is_short(given), recorder.more_than(before, ApiVersionsRequest))
        recorder.held.set()
        return found

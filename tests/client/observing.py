"""What a client does with its settings, seen from outside: what it asks, raises and leaves."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.errors import ConfigError, KohortError
from kohort.values import replace
from kohort.wire import frame as frames
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataResponse
from kohort.wire.messages.produce import ProduceRequest
from kohort.wire.schema import Message
from tests.broker.processes import DEADLINE_S
from tests.client.cutting_proxy import CuttingProxy

Client: TypeAlias = Consumer | Producer | AdminClient
Kind: TypeAlias = type[Consumer] | type[Producer] | type[AdminClient]
M = TypeVar("M", bound=Message)

# For what must not happen: nothing waits for it if it does.
WATCHED_S = 1.0
HOUR_MS = 3_600_000
FETCH = 1
PLACE = TopicPartition("t", 0)


class Recorder(CuttingProxy):
    """Stands for one broker and keeps what clients ask.

    Attributes:
        requests: What was asked, in order.
        client_ids: As whom.
        advertised: Host and port of the broker instead of its own.
        damages: Whether a value of fetched records is another than the one that was produced.
        held: Clear: answers to Metadata and Produce are held back until it is set.
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
        # a request's memory is its frame's: what is kept must not be a view of it
        received = frames.decode_request(memoryview(bytes(frame)))
        self.requests.append(received.message)
        self.client_ids.add(received.client_id)
        return None

    def asked(self, kind: type[M]) -> list[M]:
        """What was asked of one kind."""
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


def more_than(count: int, counted: Callable[[], int], step: Callable[[], object]) -> bool:
    """Whether something is counted more often; after `WATCHED_S` it is not."""
    end = time.monotonic() + WATCHED_S
    while counted() <= count and time.monotonic() < end:
        step()
    return counted() > count


def idle() -> None:
    threading.Event().wait(0.02)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[None]]]:
    """A server that does one thing with each connection; a list as long as there were any."""
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
    """The text of what a call raises, empty when it raises nothing."""
    try:
        call()
    except (KohortError, ValueError, TimeoutError) as error:
        return str(error)
    return ""


def in_words(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found.group(0)


# ------------------------------------------------------------------- what every client can do

LASTS: dict[Kind, str] = {Producer: "max_block_ms"}


def a_call(client: Client, topic: str = "t") -> object:
    """Something for which the client needs the brokers."""
    if isinstance(client, Consumer):
        return client.end_offsets([TopicPartition(topic, 0)])
    if isinstance(client, Producer):
        return client.send(topic, b"value").result(DEADLINE_S)
    return client.list_offsets({TopicPartition(topic, 0): -1})


def bounded(kind: Kind, timeout_ms: int) -> dict[str, object]:
    """Settings with which a call takes no longer."""
    return {LASTS.get(kind, "default_api_timeout_ms"): timeout_ms}


def to_the_leader(client: Client) -> object:
    """Something that the partition's leader or the coordinator must answer."""
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


def together(calls: int, call: Callable[[], object]) -> Iterator[None]:
    """Make calls in as many threads; they end when the generator is closed."""
    with ThreadPoolExecutor(calls) as pool:
        done = [pool.submit(call) for _ in range(calls)]
        yield
        for each in done:
            each.result(DEADLINE_S)


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

"""A proxy between a client and a broker that loses answers to delivered requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.metadata import MetadataResponse

PRODUCE, METADATA = 0, 3


class Asked(NamedTuple):
    """A forwarded request.

    Attributes:
        key: Its API key.
        version: Its version.
        answer: The frame that answers it instead of the broker's.
    """

    key: int
    version: int
    answer: bytes | None


class CuttingProxy:
    """Plays one broker; cuts the connection instead of forwarding chosen answers.

    Attributes:
        bootstrap_servers: Its address; metadata names it instead of the broker.
        cut: Called with the number of each answer to Produce; True loses it.
        loses: Keys of the APIs whose answers are lost in the same way.
        lost: Number of lost answers.
    """

    def __init__(self, broker: str, cut: Callable[[int], bool]) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self._port}"
        self.cut = cut
        self.loses = frozenset({PRODUCE})
        self.lost = 0
        self._answers = 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for each in self._sockets:
                _end(each)
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            with self._lock:
                self._sockets += [client, broker]
            asked: dict[int, Asked] = {}
            self._spawn(lambda c=client, b=broker, a=asked: self._requests(c, b, a))  # type: ignore[misc]  # bound early on purpose
            self._spawn(lambda c=client, b=broker, a=asked: self._responses(c, b, a))  # type: ignore[misc]  # bound early on purpose

    def _requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, Asked]
    ) -> None:
        while (frame := _read(client)) is not None:
            key, version, number = frames.peek_request(memoryview(frame))
            answer = self.answer_itself(frame)
            asked[number] = Asked(key, version, answer)
            # a substitute request to the broker keeps the answers in order
            instead = frames.encode_request(ApiVersionsRequest(), 0, number, None)
            if not _sent(broker, _framed(frame) if answer is None else instead):
                break
        _end(broker)

    def answer_itself(self, _frame: bytes) -> bytes | None:
        """Return an answer (a whole frame) without asking the broker; None to ask it."""
        return None

    def changed(self, _key: int, frame: bytes) -> bytes:
        """Return the broker's answer to a request of this API, in the form for the client."""
        return frame

    def on_the_way(self, _key: int, out: bytes) -> bytes:
        """Return the part of an answer (a whole frame with its length) that arrives."""
        return out

    def _responses(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, Asked]
    ) -> None:
        while (frame := _read(broker)) is not None:
            number = frames.correlation_id_of(memoryview(frame))
            request = asked.pop(number)
            if request.key in self.loses and self._loses():
                break
            out = request.answer or _framed(self.changed(request.key, frame))
            if request.key == METADATA:
                out = self._renamed(frame, request.version, number)
            if not _sent(client, self.on_the_way(request.key, out)):
                break
        _end(client)
        _end(broker)

    def _loses(self) -> bool:
        with self._lock:
            self._answers += 1
            if self.cut(self._answers):
                self.lost += 1
                return True
            return False

    def _renamed(self, frame: bytes, version: int, number: int) -> bytes:
        response = frames.decode_response(MetadataResponse, version, memoryview(frame))
        brokers = tuple(
            replace(each, host="127.0.0.1", port=self._port) for each in response.brokers
        )
        renamed = replace(response, brokers=brokers)
        return bytes(frames.encode_response(renamed, version, number))


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _read(sock: socket.socket) -> bytes | None:
    head = _exactly(sock, 4)
    return None if head is None else _exactly(sock, int.from_bytes(head, "big"))


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    out = bytearray()
    while len(out) < size:
        try:
            part = sock.recv(size - len(out))
        except OSError:
            return None
        if not part:
            return None
        out += part
    return bytes(out)


def _sent(to: socket.socket, data: bytes | bytearray) -> bool:
    """Send bytes, unless the other end has already closed."""
    try:
        to.sendall(data)
    except OSError:
        return False
    return True


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended already
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()

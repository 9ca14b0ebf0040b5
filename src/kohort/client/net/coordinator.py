"""The coordinator of one group, or of one transactional id: look it up and send it requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kohort.client.consumer.membership.metrics import GroupMetrics
from kohort.client.measures import precise_ms
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster, Purpose
from kohort.errors import (
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    told_by_server,
    with_right,
)
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.find_coordinator import Coordinator as Located
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest

R = TypeVar("R", bound=Message)

_KEY_TYPES = {"group": 0, "transactional id": 1}
# The first group of a cluster makes the broker create the offsets topic: some attempts fail.
_MISSES = 5

# Codes by which a broker says that it is not the coordinator: it has to be looked up again.
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordinator:
    """Finds the coordinator of one group or transactional id, and sends it requests.

    Args:
        cluster: The brokers.
        group_id: The group.
        what: The kind of id: "group" or "transactional id".

    Attributes:
        on_found: Called each time the coordinator is found; a commit may look it up as well.
    """

    def __init__(self, cluster: Cluster, group_id: str, what: str = "group") -> None:
        self.group_id = group_id
        self.metrics = GroupMetrics()
        self._cluster = cluster
        self.on_found: list[Callable[[], None]] = []
        self._node_id: int | None = None
        self._misses = 0
        self._key_type = _KEY_TYPES[what]
        self._shown = f"{what} {group_id}"

    @property
    def node_id(self) -> int | None:
        """Node id of the coordinator; None before it was found."""
        return self._node_id

    async def locate(self) -> Located:
        """Ask once which broker is the coordinator, and return the answer.

        Raises:
            KafkaError: There was no answer, or it names no coordinator.
        """
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=(self.group_id,))
        response = await self._cluster.send_any(request)
        found = response.coordinators[0] if response.coordinators else None
        if found is None or found.error_code:
            code = found.error_code if found else ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise self._not_found(code, told_by_server(found.error_message if found else None))
        return found

    async def find(self) -> None:
        """Look the coordinator up, once.

        Raises:
            KafkaError: There was no answer, or it names no coordinator.
        """
        found = await self.locate()
        if found.node_id not in self._cluster.metadata.nodes:
            await self._cluster.refresh(Deadline(self._cluster.config.request_timeout_ms))
        self._node_id = found.node_id
        self._misses = 0
        self._cluster.incidents.over(self._shown, f"{self._shown} has a coordinator again")
        for tell in self.on_found:
            tell()

    def _not_found(self, code: int, why: str) -> KafkaError:
        # For a group, the text would only repeat the code.
        is_group = self._key_type == _KEY_TYPES["group"]
        text = self._shown if is_group or not why else f"{self._shown}: {why}"
        right = "READ (to look: DESCRIBE)" if is_group else "WRITE"
        error = KafkaError(code, with_right(code, text, right))
        self._misses += 1
        if self._misses >= _MISSES:
            text = f"{self._shown} has no coordinator: {error.name}; looking for it again"
            self._cluster.incidents.note(self._shown, error.name, text)
        return error

    def forget(self) -> None:
        """Look the coordinator up again next time."""
        self._node_id = None

    async def serves(self, request: type[Message]) -> bool:
        """Whether the coordinator serves a request.

        Raises:
            KafkaError: The coordinator cannot be reached.
        """
        assert self._node_id is not None
        connection = await self._cluster.connection(self._node_id, Purpose.GROUP)
        return connection.serves(request)

    async def level(self, feature: str) -> int:
        """Return the level of a feature (KIP-584) at the coordinator.

        Raises:
            KafkaError: The coordinator cannot be reached.
        """
        assert self._node_id is not None
        connection = await self._cluster.connection(self._node_id, Purpose.GROUP)
        return connection.level(feature)

    async def reach(self) -> None:
        """Find the coordinator and connect to it, so that the next request does not wait.

        Raises:
            KafkaError: The coordinator cannot be reached.
        """
        if self._node_id is None:
            await self.find()
        assert self._node_id is not None
        try:
            await self._cluster.connection(self._node_id, Purpose.GROUP)
        except (BrokerUnavailableError, RemoteProtocolError):
            self.forget()
            raise

    async def send(
        self,
        request: Request[R],
        *,
        purpose: Purpose = Purpose.GROUP,
        timeout_ms: int | None = None,
        at_most: int | None = None,
        call: Deadline | None = None,
    ) -> R:
        """Send a request to the coordinator, after looking it up if necessary; see `Cluster.send`.

        Raises:
            KafkaError: There was no answer.
        """
        if self._node_id is None:
            await self.find()
        assert self._node_id is not None
        begun = precise_ms()
        self.metrics.sent(request, begun)
        try:
            response = await self._cluster.send(
                self._node_id,
                request,
                purpose=purpose,
                timeout_ms=timeout_ms,
                at_most=at_most,
                call=call,
            )
        except KohortError as error:
            self.metrics.unanswered(request, precise_ms())
            if isinstance(error, (BrokerUnavailableError, RemoteProtocolError)):
                self.forget()
            raise
        self.metrics.answered(response, precise_ms() - begun, precise_ms())
        return response

    async def call(
        self,
        request: Request[R],
        errors: Callable[[R], list[int]],
        deadline: Deadline,
        *,
        at_most: int | None = None,
        pause: Backoff | None = None,
    ) -> R:
        """Retry a request until an answer has no transient error, or the deadline passes.

        Args:
            request: The request.
            errors: Returns the error codes of an answer.
            deadline: When to give up.
            at_most: The newest version to use.
            pause: The pauses between attempts.

        Raises:
            KafkaError: There is no answer in time.
        """
        pause = pause or self._cluster.retry_backoff()
        longest_ms = self._cluster.config.request_timeout_ms
        deadline.lost = None
        what = f"{type(request).__name__} to the coordinator of {self._shown}"
        async with self._cluster.within(deadline, what):
            while True:
                try:
                    timeout_ms = max(1, deadline.left_ms(longest_ms))
                    response = await self.send(
                        request, timeout_ms=timeout_ms, at_most=at_most, call=deadline
                    )
                except KohortError as error:
                    failure: KohortError = error
                else:
                    passing = [code for code in errors(response) if is_passing(code)]
                    if not passing:
                        return response
                    failure = KafkaError(passing[0], self._shown)
                    if failure.code == ErrorCode.REQUEST_TIMED_OUT:
                        deadline.lost = failure  # the coordinator itself may not know the outcome
                if isinstance(failure, KafkaError) and failure.code in MOVED:
                    self.forget()
                await self._cluster.wait_after(failure, pause, deadline)


def is_passing(code: int) -> bool:
    """Whether an error of the coordinator is transient."""
    return code in MOVED or code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )

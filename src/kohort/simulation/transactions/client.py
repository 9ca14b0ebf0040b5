"""One run of a transactional producer: the real machine, and a shell without a network.

It is a generator that yields requests and receives the answers, None for a lost one. Calls may time
out before they are done; the application then repeats them.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from random import Random
from typing import TypeAlias

from msgspec import Struct, field

from kohort.client.producer.batch import Identity
from kohort.client.producer.transactions.calls import FENCED, ended
from kohort.client.producer.transactions.machine import (
    Abort,
    Begin,
    Commit,
    Doomed,
    Failed,
    Identified,
    Initialize,
    Interrupted,
    Settled,
    Step,
    Touched,
    TransactionMachine,
    TransactionState,
)
from kohort.errors import ErrorCode, KafkaError
from kohort.group.transactions.events import (
    AddPartitions,
    EndAndRenew,
    EndTransaction,
    InitProducer,
    Producer,
    TransactionEvent,
)
from kohort.simulation.seeded import RuleBrokenError
from kohort.simulation.transactions.cluster import Answer, Produce
from kohort.types import TopicPartition
from kohort.wire.messages.txn_requests import EndTxnResponse
from kohort.wire.records import Record, encode_batch

S = TransactionState
Request: TypeAlias = TransactionEvent | Produce


class Fate(Enum):
    """The result of a transaction, as the application knows it."""

    OPEN = "nothing yet"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "that it is not known"


class Sent(Struct):
    """One transaction, as its application knows it.

    Attributes:
        values: The acknowledged values, by partition.
        fate: Its result.
        may_commit: Whether a commit was ever requested.
        wanted: Whether the application meant to commit it from the start.
        has_failed: Whether a record was given up.
    """

    values: dict[str, TopicPartition] = field(default_factory=dict)
    fate: Fate = Fate.OPEN
    may_commit: bool = False
    wanted: bool = False
    has_failed: bool = False


class _TimeUpError(Exception):
    """The call took too long."""


_MOST_CALLS = 1_000
_Steps: TypeAlias = "Generator[Request, Answer | None, None]"


class Client:
    """An application with one producer.

    Args:
        name: Its transactional id.
        number: Number of the process among those with this id.
        chance: The random choices of the application.
        partitions: The partitions that it may write to.
        has_v2: Whether the cluster has version 2 of transactions (KIP-890).
        impatience: Probability that an unanswered call is given up.
        most: Number of its transactions.

    Attributes:
        sent: Its transactions.
    """

    def __init__(
        self,
        name: str,
        number: int,
        chance: Random,
        partitions: list[TopicPartition],
        *,
        has_v2: bool,
        impatience: float,
        most: int,
    ) -> None:
        self.name = name
        self.number = number
        self.sent: list[Sent] = []
        self.impatience = impatience
        self.machine = TransactionMachine()
        self._chance = chance
        self._partitions = partitions
        self._has_v2 = has_v2
        self._most = most
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._waiting: list[str] = []
        self._calls = 0
        self._got_lost = False

    def __repr__(self) -> str:
        """Return its name and number."""
        return f"{self.name}.{self.number}"

    @property
    def state(self) -> TransactionState:
        """Return the state of the machine."""
        return self.machine.session.state

    def work(self) -> _Steps:
        """Initialize the producer, then run one transaction after the other."""
        while self.state is S.UNINITIALIZED:
            yield from self._call(Initialize())
        while self.state is S.READY and len(self.sent) < self._most:
            yield from self._transaction()

    # ---------------------------------------------------------------------------- transactions

    def _transaction(self) -> _Steps:
        sent = Sent()
        self.sent.append(sent)
        self._run(Begin())
        for number in range(self._chance.randrange(4)):
            self._waiting.append(f"{self!r}:{len(self.sent)}:{number}")
        while self._chance.random() < 0.7:
            yield from self._flush(most=1)
        commits = sent.wanted = self._chance.random() < 0.7
        while sent.fate is Fate.OPEN:
            if self.state is S.ABORTING or self._chance.random() < 0.5:
                commits = commits and self.state not in (S.ABORTABLE_ERROR, S.ABORTING)
            sent.may_commit |= commits
            yield from self._end_with(sent, commits=commits)

    def _end_with(self, sent: Sent, *, commits: bool) -> _Steps:
        """Request the end once, and note the result."""
        before = self.machine.session
        yield from self._call(Commit() if commits else Abort())
        if self.state is S.READY:
            sent.fate = Fate.COMMITTED if commits else Fate.ABORTED
            sent.has_failed |= bool(self._waiting)
            self._waiting.clear()
        elif self.state is S.FATAL_ERROR:
            unsure = before.is_unsure or before.is_sent or self._got_lost
            sent.fate = Fate.UNKNOWN if sent.may_commit and unsure else Fate.ABORTED

    def _flush(self, most: int = 9) -> _Steps:
        """Write waiting records until a write fails."""
        writing, self._waiting = self._waiting[:most], self._waiting[most:]
        for value in writing:
            if self.state in (S.IN_TRANSACTION, S.COMMITTING):
                yield from self._write(value, self.sent[-1])

    def _fail(self, error: ErrorCode) -> None:
        self.sent[-1].has_failed = True
        self._run(Failed(KafkaError(error)))

    def _write(self, value: str, sent: Sent) -> _Steps:
        """Write a record; without an answer, retry a limited number of times."""
        where = self._chance.choice(self._partitions)
        self._run(Touched())
        if not self._has_v2 and where not in self._added:
            added = AddPartitions(
                transactional_id=self.name,
                producer=self._producer,
                partitions=frozenset({where}),
            )
            error = yield from self._stored(added)
            if error is not ErrorCode.NONE:
                self._fail(error)
                return
            self._added.add(where)
        sequence = self._sequences.get(where, 0)
        batch = encode_batch(
            [Record(0, 0, None, value.encode())],
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        produce = Produce(self.name, self._producer, where, batch, implied=self._has_v2)
        error = yield from self._stored(produce)
        if error is ErrorCode.NONE:
            self._sequences[where] = sequence + 1
            sent.values[value] = where
        else:
            self._fail(error)

    def _stored(self, request: Request) -> Generator[Request, Answer | None, ErrorCode]:
        while True:
            answer = yield request
            if answer is not None and answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer.error
            if self._chance.random() < self.impatience:
                return ErrorCode.REQUEST_TIMED_OUT

    # -------------------------------------------------------------------------------- the calls

    def _run(self, event: object) -> Step:
        before = self.machine.session.identity
        decision = self.machine.decide(event)
        self.machine.install(decision.session)
        if decision.session.identity != before:
            self._sequences.clear()
        if self.state is S.READY:
            self._added.clear()
        return decision.step

    def _call(self, event: object) -> _Steps:
        """Make a call of the application; repeat it if it ends before it is done."""
        self._got_lost = False
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise RuleBrokenError("X7", f"{self!r} gets nowhere: {self.machine.session}")
        try:
            step = self._run(event)
            while step is not Step.NONE:
                happened = yield from self._do(step)
                step = self._run(happened)
        except _TimeUpError:
            self._run(Interrupted())

    def _do(self, step: Step) -> Generator[Request, Answer | None, object]:
        if step is Step.FLUSH:
            if self._chance.random() < self.impatience:
                raise _TimeUpError
            yield from self._flush()
            return Settled()
        if step is Step.DROP:
            self._waiting.clear()
            return Settled()
        if step in (Step.IDENTIFY, Step.RENEW):
            return (yield from self._identify(renews=step is Step.RENEW))
        return (yield from self._end(commits=step is Step.COMMIT))

    def _answer(self, request: Request) -> Generator[Request, Answer | None, Answer]:
        while True:
            answer = yield request
            if answer is None:
                self._got_lost = True
            elif answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer
            if self._chance.random() < self.impatience:
                raise _TimeUpError

    def _identify(self, *, renews: bool) -> Generator[Request, Answer | None, object]:
        request = InitProducer(
            transactional_id=self.name,
            timeout_ms=60_000,
            expected=self._producer if renews else None,
        )
        answer = yield from self._answer(request)
        if answer.error in FENCED:
            return Doomed(KafkaError(answer.error))
        if answer.producer is None:
            raise RuleBrokenError("X7", f"{self!r}: {request} is answered {answer}")
        identity = Identity(answer.producer.producer_id, answer.producer.epoch)
        return Identified(identity, self._has_v2)

    def _end(self, *, commits: bool) -> Generator[Request, Answer | None, object]:
        kind = EndAndRenew if self._has_v2 else EndTransaction
        request = kind(transactional_id=self.name, producer=self._producer, commits=commits)
        self._got_lost = False
        answer = yield from self._answer(request)
        if answer.error is not ErrorCode.NONE and self._got_lost:
            self._run(Interrupted())
        new = answer.producer or Producer(-1, -1)
        response = EndTxnResponse(
            error_code=answer.error, producer_id=new.producer_id, producer_epoch=new.epoch
        )
        return ended(self.name, self.machine.session, response, is_unsure=self._got_lost)

    @property
    def _producer(self) -> Producer:
        identity = self.machine.session.identity
        assert identity is not None
        return Producer(identity.producer_id, identity.epoch)

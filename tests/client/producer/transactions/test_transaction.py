"""The state machine of a transactional producer on its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.producer.batch import Identity
from kohort.client.producer.transactions.machine import (
    TRANSACTION,
    Abort,
    Begin,
    Commit,
    Doomed,
    Ended,
    Failed,
    Identified,
    Initialize,
    Interrupted,
    Outdated,
    Refused,
    Settled,
    Step,
    Touched,
    TransactionMachine,
    TransactionSession,
    TransactionState,
)
from kohort.errors import ErrorCode, KafkaError, LocalProtocolError

S = TransactionState
LATE = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")
FENCED = KafkaError(ErrorCode.PRODUCER_FENCED)
CALLS = (Initialize(), Begin(), Commit(), Abort())
# Events that may occur during a step, or in the background.
BACKGROUND = (Touched(), Failed(LATE), Failed(FENCED))


def answers(step: Step, epoch: int, has_v2: bool) -> list[object]:
    """The possible outcomes of a step."""
    new = Identity(1, epoch)
    always = [Interrupted(), *BACKGROUND]
    if step in (Step.IDENTIFY, Step.RENEW):
        return [Identified(new, has_v2), Doomed(FENCED), *always]
    if step in (Step.COMMIT, Step.ABORT):
        ended = Ended(new) if has_v2 else Ended(None)
        return [ended, Outdated(FENCED), Refused(LATE), Doomed(LATE), *always]
    return [Settled(), *always]


class Play:
    """A machine with a shell that runs its steps, and a coordinator that records its requests.

    Attributes:
        machine: The machine.
        step: Its next step.
        asked: Requests to the coordinator about the current transaction.
    """

    def __init__(self) -> None:
        self.machine = TransactionMachine()
        self.step = Step.NONE
        self.asked: set[Step] = set()

    @property
    def session(self) -> TransactionSession:
        return self.machine.session

    def tell(self, event: object) -> None:
        before = self.session
        decision = self.machine.decide(event)
        assert self.session is before, "decide changes nothing"
        self.machine.install(decision.session)
        is_done = isinstance(event, Ended) and Step.COMMIT in self.asked
        assert (
            not is_done
            or before.state is not S.COMMITTING
            or decision.state is not (S.ABORTABLE_ERROR)
        ), "what the broker has committed is committed"
        if not isinstance(event, (Touched, Failed)) or decision.state is not before.state:
            self.step = decision.step
        if isinstance(event, Begin):
            self.asked = set()
        if self.step in (Step.COMMIT, Step.ABORT):
            self.asked.add(self.step)


def reached(*events: object) -> Play:
    play = Play()
    for event in events:
        play.tell(event)
    return play


READY = (Initialize(), Identified(Identity(1, 0), True))
OPEN = (*READY, Begin())


@given(st.data())
def test_whatever_happens_a_transaction_is_never_both_committed_and_aborted(
    data: st.DataObject,
) -> None:
    play = Play()
    has_failed = False
    for epoch in range(1, 40):
        state = play.session.state
        if play.step is Step.NONE:
            event: object = data.draw(st.sampled_from([*CALLS, *BACKGROUND]))
        else:
            event = data.draw(st.sampled_from(answers(play.step, epoch, play.session.has_v2)))
        if isinstance(event, Begin):
            has_failed = False
        try:
            play.tell(event)
        except LocalProtocolError:
            assert event in CALLS
            continue
        has_failed |= isinstance(event, Failed) and state is S.IN_TRANSACTION
        assert not (has_failed and Step.COMMIT in play.asked), (
            "what lacks a record is not committed"
        )
        if play.asked >= {Step.COMMIT, Step.ABORT}:
            assert play.session.state in (S.ABORTING, S.READY, S.FATAL_ERROR)
            # only the broker's answer that it was not committed leads from one to the other
            assert has_failed or play.session.cause is not None or play.session.state is S.READY
        if state is S.FATAL_ERROR:
            assert play.session.state is S.FATAL_ERROR
            assert play.step is Step.NONE


@given(st.data())
def test_there_is_always_a_way_on(data: st.DataObject) -> None:
    """From any state that is not final, calls lead to READY again once the brokers answer."""
    play = Play()
    for epoch in range(1, 30):
        options: list[object] = list(CALLS) if play.step is Step.NONE else []
        options += answers(play.step, epoch, has_v2=data.draw(st.booleans()))
        event = data.draw(st.sampled_from(options))
        try:
            play.tell(event)
        except LocalProtocolError:
            continue
        if isinstance(event, Interrupted):
            play.step = Step.NONE
    play.tell(Interrupted())
    play.step = Step.NONE
    calls = {
        S.UNINITIALIZED: Initialize(),
        S.IN_TRANSACTION: Abort(),
        S.COMMITTING: Commit(),
        S.ABORTING: Abort(),
        S.ABORTABLE_ERROR: Abort(),
    }
    for epoch in range(100, 110):
        if play.session.state in (S.READY, S.FATAL_ERROR):
            return
        if play.step is Step.NONE:
            play.tell(calls[play.session.state])
        else:
            play.tell(answers(play.step, epoch, play.session.has_v2)[0])
    raise AssertionError(f"no way on from {play.session}")


@pytest.mark.parametrize("state", list(S))
def test_each_state_names_the_calls_that_it_allows(state: TransactionState) -> None:
    allowed = {
        S.UNINITIALIZED: {Initialize},
        S.INITIALIZING: set(),
        S.READY: {Begin},
        S.IN_TRANSACTION: {Commit, Abort},
        S.COMMITTING: {Commit},
        S.ABORTING: {Abort},
        S.ABORTABLE_ERROR: {Commit, Abort},
        S.FATAL_ERROR: set(),
    }
    answered = {trigger for of, trigger in TRANSACTION.cells if of is state}
    assert answered & {*TRANSACTION.local} == allowed[state]


def test_a_commit_is_taken_back_only_before_it_was_asked_for() -> None:
    waiting = reached(*OPEN, Touched(), Commit())
    assert waiting.step is Step.FLUSH
    waiting.tell(Interrupted())
    assert waiting.session.state is S.IN_TRANSACTION
    asked = reached(*OPEN, Touched(), Commit(), Settled())
    assert asked.step is Step.COMMIT
    asked.tell(Interrupted())
    assert asked.session.state is S.COMMITTING
    with pytest.raises(LocalProtocolError):
        asked.tell(Abort())
    asked.tell(Commit())
    assert asked.step is Step.COMMIT


def test_a_transaction_without_records_asks_the_coordinator_for_nothing() -> None:
    for call in (Commit(), Abort()):
        play = reached(*OPEN, call, Settled())
        assert (play.session.state, play.asked) == (S.READY, set())


def test_a_failure_that_comes_after_the_request_to_commit_changes_nothing() -> None:
    """From another thread, whose rows the commit has cut off: the broker commits anyway."""
    play = reached(*OPEN, Touched(), Commit(), Settled())
    play.tell(Failed(LATE))
    play.tell(Ended(Identity(1, 1)))
    assert play.session.state is S.READY


def test_the_first_cause_stays() -> None:
    play = reached(*OPEN, Failed(LATE), Failed(FENCED))
    assert play.session.cause is LATE


def test_a_new_epoch_follows_each_end_in_version_2() -> None:
    play = reached(*OPEN, Touched(), Commit(), Settled(), Ended(Identity(1, 1)))
    assert play.session == TransactionSession(state=S.READY, identity=Identity(1, 1), has_v2=True)


@pytest.mark.parametrize(
    ("events", "asks"),
    [
        ((Commit(), Settled(), Ended()), False),
        ((Commit(), Settled(), Ended(is_unsure=True)), True),
        ((Commit(), Settled(), Interrupted(), Commit(), Ended()), True),
        ((Abort(), Settled(), Ended()), True),
    ],
)
def test_in_version_1_an_epoch_is_asked_for_where_a_request_may_come_late(
    events: tuple[object, ...], asks: bool
) -> None:
    play = reached(Initialize(), Identified(Identity(1, 0), False), Begin(), Touched(), *events)
    assert (play.step is Step.RENEW) == asks
    if asks:
        play.tell(Interrupted())  # the transaction has ended anyway
        play.tell(Commit() if play.session.state is S.COMMITTING else Abort())
        assert play.step is Step.RENEW
        play.tell(Identified(Identity(1, 1), False))
    assert play.session.state is S.READY


def test_an_epoch_that_is_refused_is_fencing_only_if_the_next_one_is_refused_too() -> None:
    doubtful = (*OPEN, Touched(), Commit(), Settled(), Outdated(FENCED))
    assert reached(*doubtful).step is Step.RENEW
    lost = reached(*doubtful, Identified(Identity(1, 5), True))
    assert (lost.session.state, lost.session.is_lost) == (S.ABORTABLE_ERROR, True)
    lost.tell(Abort())
    lost.tell(Settled())
    assert (lost.session.state, lost.session.identity) == (S.READY, Identity(1, 5))
    assert Step.ABORT not in lost.asked
    assert reached(*doubtful, Doomed(FENCED)).session.state is S.FATAL_ERROR

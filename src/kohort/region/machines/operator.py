"""The state machine of an operator: its records, its reads, and when it gives back a partition.

It is driven by inputs of the shell and by the log. After each input the machine checks the log. The
rows for `Noticed` apply at any time; those for `Free` apply only once the log shows the result of
every record that the operator has written.
"""

from __future__ import annotations

from msgspec import Struct

from kohort.group.machine import Row, Table, TableError, row
from kohort.region.machines import operator_inputs as inputs
from kohort.region.machines import operator_log as log
from kohort.region.machines.events import (
    Appended,
    Assigned,
    Close,
    CutFailed,
    CutMade,
    Delivered,
    Discarded,
    Folded,
    OperatorEffects,
    OperatorInput,
    PartitionsLost,
    Revoked,
    StartFound,
    Stopped,
    Tick,
    WentHealthy,
    WentUnhealthy,
)
from kohort.region.machines.operator_session import (
    OperatorConfig,
    OperatorDecision,
    OperatorSession,
    OperatorState,
)

__all__ = ["OPERATOR", "OperatorConfig", "OperatorMachine", "OperatorSession", "OperatorState"]


_ROUNDS_MAX = 100


class Noticed(Struct, frozen=True):
    """The log was read; appends may be in flight."""


class Free(Struct, frozen=True):
    """The log was read, and shows the result of everything written."""


class OperatorMachine:
    """One operator.

    Attributes:
        session: Its memory; the shell installs the session of each result.
    """

    def __init__(self, config: OperatorConfig) -> None:
        """Create an operator that is not registered yet."""
        self.config = config
        self.session = OperatorSession()

    @property
    def state(self) -> OperatorState:
        """Its state."""
        return self.session.state

    def install(self, effects: OperatorEffects) -> None:
        """Adopt the session of a decision."""
        assert isinstance(effects.session, OperatorSession)
        self.session = effects.session

    def decide(self, event: OperatorInput, now: int) -> OperatorEffects:
        """Return the effects of an input without changing anything.

        Args:
            event: What happened.
            now: Time in milliseconds from a monotonic clock.
        """
        decision = OperatorDecision(config=self.config, session=self.session, now=now)
        OPERATOR.run(decision, type(event), event)
        if not isinstance(event, Delivered):  # frequent, and independent of the log
            _look(decision)
        return decision.effects()


def _look(decision: OperatorDecision) -> None:
    """Apply rows until none matches."""
    for _ in range(_ROUNDS_MAX):
        before = decision.session
        OPERATOR.run(decision, Noticed, Noticed())
        if decision.session is before and decision.is_free:
            OPERATOR.run(decision, Free, Free())
        if decision.session is before:
            return
    raise TableError(f"operator {decision.config.id} does not come to rest in {decision.state}")


# ------------------------------------------------------------------------------------------- tables

Rows = tuple[Row[OperatorState, OperatorDecision], ...]

INITIALIZED = OperatorState.INITIALIZED
SUBSCRIBED = OperatorState.SUBSCRIBED
FETCHED = OperatorState.RECORDS_FETCHED
PENDING = OperatorState.CR_RESET_PENDING
COMPLETE = OperatorState.RESET_COMPLETE
CLOSED = OperatorState.CLOSED
FENCED = OperatorState.FENCED
FAILED = OperatorState.FAILED

READING = (SUBSCRIBED, FETCHED, COMPLETE)
ACTIVE = (*READING, PENDING)
LIVING = (INITIALIZED, *ACTIVE)
OVER = (CLOSED, FENCED, FAILED)

INPUT_ROWS: Rows = (
    row(LIVING, Folded, inputs.take_fold),
    row(LIVING, Appended, inputs.end_append),
    row(LIVING, Tick, inputs.pass_over),
    row(LIVING, Assigned, inputs.take_assignment, rule="A41"),
    row(INITIALIZED, Revoked, inputs.take_back_idle, rule="A34"),
    row(ACTIVE, Revoked, inputs.take_back, rule="A35"),
    row(OVER, Revoked, inputs.take_back_idle),
    row(INITIALIZED, PartitionsLost, inputs.lose_idle),
    row(ACTIVE, PartitionsLost, inputs.lose, to=PENDING, rule="A40"),
    row(LIVING, StartFound, inputs.keep_start, rule="A70"),
    row(
        READING,
        Delivered,
        inputs.count_delivered,
        when=inputs.is_of_this_read,
        to=FETCHED,
        rule="A33",
    ),
    row(PENDING, Delivered, inputs.count_late, when=inputs.is_of_this_read, rule="A45"),
    row(LIVING, Delivered, inputs.pass_over, rule="A45"),
    row(LIVING, Stopped, inputs.note_stopped, rule="A47"),
    row(READING, CutMade, inputs.take_cut, when=inputs.is_of_this_cut, rule="A53"),
    row(LIVING, CutMade, inputs.pass_over),
    row(READING, CutFailed, inputs.give_up_cut, when=inputs.is_of_this_cut, to=PENDING, rule="A50"),
    row(LIVING, CutFailed, inputs.pass_over),
    row(
        PENDING,
        Discarded,
        inputs.finish_discarding,
        when=inputs.is_of_this_attempt,
        to=COMPLETE,
        rule="A57",
    ),
    row(LIVING, Discarded, inputs.pass_over),
    row(ACTIVE, WentUnhealthy, inputs.fall_ill, to=PENDING),
    row(INITIALIZED, WentUnhealthy, inputs.remember_illness),
    row(LIVING, WentHealthy, inputs.recover),
    row(LIVING, Close, inputs.close, rule="A6"),
    row(OVER, Folded, inputs.pass_over),
    row(OVER, Appended, inputs.pass_over),
    row(OVER, Tick, inputs.pass_over),
    row(OVER, Assigned, inputs.pass_over),
    row(OVER, PartitionsLost, inputs.pass_over),
    row(OVER, StartFound, inputs.pass_over),
    row(OVER, Delivered, inputs.pass_over),
    row(OVER, Stopped, inputs.pass_over),
    row(OVER, CutMade, inputs.pass_over),
    row(OVER, CutFailed, inputs.pass_over),
    row(OVER, Discarded, inputs.pass_over),
    row(OVER, WentUnhealthy, inputs.pass_over),
    row(OVER, WentHealthy, inputs.pass_over),
    row(OVER, Close, inputs.pass_over),
)

NOTICED_ROWS: Rows = (
    row(LIVING, Noticed, inputs.leave_now, when=inputs.must_leave_now, to=CLOSED, rule="A31"),
    row(LIVING, Noticed, inputs.refuse, when=inputs.differs, to=FAILED, rule="A3"),
    row(ACTIVE, Noticed, inputs.finish_closing, when=inputs.has_left, to=CLOSED, rule="A6"),
    row(ACTIVE, Noticed, inputs.be_fenced, when=inputs.is_out, to=FENCED),
    row(ACTIVE, Noticed, inputs.go_back, when=inputs.is_attempt_new, to=PENDING, rule="A57"),
    row(ACTIVE, Noticed, inputs.let_go, when=inputs.is_time_over, to=PENDING),
    row(PENDING, Noticed, inputs.tell_of_merge, when=inputs.is_merge_late, rule="A64"),
    row(ACTIVE, Noticed, inputs.close_with_region, when=inputs.is_stopped_by_region),
    row(tuple(OperatorState), Noticed, inputs.rest),
)

FREE_ROWS: Rows = (
    row(INITIALIZED, Free, inputs.finish_closing, when=log.is_closing, to=CLOSED),
    row(INITIALIZED, Free, log.register, when=log.is_unknown, rule="A2 A4"),
    row(INITIALIZED, Free, log.begin, to=SUBSCRIBED, rule="A21"),
    row(READING, Free, log.forget_contribution, when=log.is_contributed),
    row(READING, Free, log.contribute, when=log.has_contribution, rule="A53"),
    row(READING, Free, log.doubt_contribution, when=log.is_refused, to=PENDING),
    # First repeat lost records, so that their late copies have no effect.
    row(ACTIVE, Free, log.say_nothing, when=log.is_doubtful),
    row(READING, Free, log.forget_released, when=log.has_released),
    row(READING, Free, log.stop_unwanted, when=log.reads_unwanted),
    row(READING, Free, log.make_cut, when=log.is_cut_due, rule="A49"),
    row(READING, Free, log.find_starts, when=log.has_no_start, rule="A69"),
    row(READING, Free, log.read, when=log.may_read, rule="A42"),
    row(ACTIVE, Free, log.end_revocation, when=log.is_handed_over),
    row(ACTIVE, Free, log.say_ill, when=log.is_newly_ill),
    row(ACTIVE, Free, log.say_healthy, when=log.is_newly_healthy),
    row(ACTIVE, Free, log.say_lost, when=log.has_lost, rule="A35 A40"),
    row(PENDING, Free, log.ask_reset, when=log.has_reason, rule="A39"),
    row(COMPLETE, Free, log.finish_reset, when=log.is_awaited, rule="A57"),
    row(ACTIVE, Free, log.unclaim, when=log.has_clean, rule="A34"),
    row(ACTIVE, Free, log.give_up, when=log.is_hopeless, to=PENDING, rule="A35"),
    row(READING, Free, log.announce, when=log.has_dirty),
    row(ACTIVE, Free, log.claim, when=log.has_unclaimed),
    row(READING, Free, log.say_start, when=log.has_start, rule="A70"),
    row(ACTIVE, Free, log.leave, when=log.may_leave, rule="A6"),
    row((*ACTIVE, *OVER), Free, inputs.rest),
)

OPERATOR: Table[OperatorState, OperatorDecision] = Table(
    "operator",
    OperatorState,
    INPUT_ROWS + NOTICED_ROWS + FREE_ROWS,
    total=(
        Folded,
        Appended,
        Tick,
        Assigned,
        Revoked,
        PartitionsLost,
        StartFound,
        Delivered,
        Stopped,
        CutMade,
        CutFailed,
        Discarded,
        WentUnhealthy,
        WentHealthy,
        Close,
        Noticed,
        Free,
    ),
)

"""Any events in any order for a KIP-848 member, including meaningless responses.

Checked after every step: the application never gets partitions it has, nor revokes others (in
`Stage.called`); at most one heartbeat is pending (L31); states are entered only from those that L30
allows (`ConsumerMemberDecision.enter`); the epoch grows until the member is removed or leaves
(L35); the application has the partitions that the member reports, and every list sent to the
coordinator contains them. Checked at the end: with a correct coordinator, it becomes stable with
its assignment; after closing, it comes to rest.
"""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.errors import ErrorCode
from kohort.group.events import MemberStateChanged
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import (
    Closing,
    CommitAnswered,
    CoordinatorLost,
    GroupMembershipOperation,
    LookupFailed,
    Polled,
    Subscribed,
    TopicsNamed,
    Unsubscribed,
)
from kohort.wire.messages.consumer_group import Assignment, TopicPartitions
from tests.group.member.consumer.consumer_member import DELAYS, FLIGHTS, NAMES, Stage

S = ConsumerMemberState
ANEW = UUID(int=3)  # flights, deleted and made anew
ALL_NAMES = NAMES | {ANEW: "flights"}
TOPICS = st.sampled_from([FLIGHTS, DELAYS, ANEW])
CODES = st.sampled_from(
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
)
ASSIGNMENTS = st.one_of(
    st.none(),
    st.lists(st.tuples(TOPICS, st.lists(st.integers(0, 3), max_size=4)), max_size=3).map(
        lambda topics: Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic, partitions=tuple(numbers))
                for topic, numbers in topics
            )
        )
    ),
)
SUBSCRIPTIONS = st.sampled_from(
    [
        Subscribed(frozenset({"flights"})),
        Subscribed(frozenset({"flights", "delays"})),
        Subscribed(frozenset(), "fl.*"),
    ]
)


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(
            MemberConfig(group_id="g", max_poll_interval_ms=60_000), knows_names=False
        )
        self.epoch = 1
        self.epoch_seen = -1
        self.facts_seen = 0
        self.stage.tell(Subscribed(frozenset({"flights"})))
        self.stage.tell(Polled())

    @rule(given=ASSIGNMENTS, steps=st.integers(1, 6))
    def go_on(self, given: Assignment | None, steps: int) -> None:
        """Let the coordinator move to the assignment `given`, without errors."""
        for _ in range(steps):
            if self.stage.requests and given is not None:
                self.epoch += 1
            self.calm_step(given, self.epoch)

    @property
    def is_open(self) -> bool:
        return self.stage.member.session.closing is None and not self.stage.member.is_failed

    # ------------------------------------------------------------------------------ application

    @precondition(lambda self: self.is_open)
    @rule(event=SUBSCRIPTIONS)
    def subscribe(self, event: Subscribed) -> None:
        self.stage.tell(event)

    @rule(times=st.integers(0, 9))
    def unsubscribe(self, times: int) -> None:
        if times == 0:
            self.stage.tell(Unsubscribed())

    @rule(times=st.integers(0, 19), operation=st.sampled_from(GroupMembershipOperation))
    def close(self, times: int, operation: GroupMembershipOperation) -> None:
        if times == 0:
            self.stage.tell(Closing(operation))

    @rule()
    def poll(self) -> None:
        self.stage.tell(Polled())

    @precondition(lambda self: self.stage.callbacks)
    @rule(error=st.sampled_from([None, "raised"]))
    def call(self, error: str | None) -> None:
        self.stage.called(error)

    # ------------------------------------------------------------------------------ coordinator

    @precondition(lambda self: self.stage.requests)
    @rule(given=ASSIGNMENTS, more=st.integers(0, 2))
    def answer(self, given: Assignment | None, more: int) -> None:
        self.epoch += more
        self.stage.answer(self.epoch, given)

    @precondition(lambda self: self.stage.requests)
    @rule(given=ASSIGNMENTS, epoch=st.integers(-2, 40), interval_ms=st.integers(-1, 9_000))
    def answer_anything(self, given: Assignment | None, epoch: int, interval_ms: int) -> None:
        self.stage.answer(epoch, given, interval_ms=interval_ms)
        self.epoch = max(self.epoch, epoch)

    @precondition(lambda self: self.stage.requests)
    @rule(code=CODES)
    def refuse(self, code: ErrorCode) -> None:
        self.stage.answer(code=code)

    @precondition(lambda self: self.stage.requests)
    @rule(times=st.integers(0, 9))
    def refuse_for_good(self, times: int) -> None:
        if times == 0:
            self.stage.answer(code=ErrorCode.INVALID_REQUEST)

    @precondition(lambda self: self.stage.requests)
    @rule()
    def lose(self) -> None:
        self.stage.lose_answer()

    # ------------------------------------------------------------------------------------ shell

    @precondition(lambda self: self.stage.looking_up)
    @rule()
    def look_up_in_vain(self) -> None:
        self.stage.looking_up = False
        self.stage.tell(LookupFailed())

    @rule(finds=st.booleans())
    def lose_coordinator(self, finds: bool) -> None:
        self.stage.tell(CoordinatorLost())
        if finds and self.stage.looking_up:
            self.stage.find()

    @rule(code=CODES)
    def commit(self, code: ErrorCode) -> None:
        self.stage.tell(CommitAnswered(self.stage.member.identity, code))

    @rule(names=st.sets(TOPICS))
    def name(self, names: set[UUID]) -> None:
        self.stage.tell(TopicsNamed({each: ALL_NAMES[each] for each in names}))

    @rule(milliseconds=st.sampled_from([100, 1_000, 5_000, 5_000, 5_000, 61_000]))
    def wait(self, milliseconds: int) -> None:
        self.stage.wait(milliseconds)

    # ------------------------------------------------------------------------------- invariants

    @invariant()
    def l31_one_heartbeat_at_a_time(self) -> None:
        assert len(self.stage.requests) <= 1

    @invariant()
    def l32_member_and_application_agree(self) -> None:
        """Except for the pending callback."""
        member, callbacks = self.stage.member, self.stage.callbacks
        assert len(callbacks) <= 1
        open_call = callbacks[0].partitions if callbacks else frozenset()
        assert member.assigned ^ self.stage.believes <= open_call
        assert member.fetchable <= self.stage.believes

    @invariant()
    def l31_all_that_the_application_has_is_claimed(self) -> None:
        session = self.stage.member.session
        if not self.stage.requests or not session.is_member:
            return
        said = self.stage.heartbeat.topic_partitions
        if said is not None and self.stage.heartbeat.member_epoch > 0:
            claimed = {(topic.topic_id, n) for topic in said for n in topic.partitions}
            assert {tuple(each) for each in session.owned | session.adding} <= claimed

    @invariant()
    def l35_the_epoch_grows(self) -> None:
        """It is reset only when a membership ends."""
        facts = self.stage.observed[self.facts_seen :]
        self.facts_seen = len(self.stage.observed)
        ends = {"FENCED", "LEAVING", "STALE", "FATAL", "UNSUBSCRIBED", "PREPARE_LEAVING"}
        states = {fact.after for fact in facts if isinstance(fact, MemberStateChanged)}
        if states & ends or self.stage.state() is S.PREPARE_LEAVING:
            self.epoch_seen = -1
        assert self.stage.member.generation_id >= self.epoch_seen
        self.epoch_seen = self.stage.member.generation_id

    # ------------------------------------------------------------------------------ in the end

    def teardown(self) -> None:
        target = Assignment(
            topic_partitions=(TopicPartitions(topic_id=FLIGHTS, partitions=(0, 1)),)
        )
        if self.is_open:
            self.stage.tell(Subscribed(frozenset({"flights"})))
        for _ in range(60):
            self.calm_step(target, 50 + self.epoch)
        member = self.stage.member
        if self.is_open:
            assert (member.state, len(self.stage.believes)) == (S.STABLE, 2)
        else:
            assert self.stage.believes == set()
            assert member.is_failed or member.is_closed

    def calm_step(self, target: Assignment | None, epoch: int) -> None:
        stage = self.stage
        if stage.looking_up:
            stage.find()
        elif stage.requests:
            leaves = stage.heartbeat.member_epoch < 0
            stage.answer(stage.heartbeat.member_epoch if leaves else epoch, target)
        elif stage.callbacks:
            stage.called()
        elif stage.member.unnamed:
            stage.tell(TopicsNamed(ALL_NAMES))
        else:
            stage.wait(1_000)
            stage.tell(Polled())


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=200, stateful_step_count=60)

"""Classic members with invalid bytes harm only themselves during a migration."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from kohort.errors import ErrorCode
from kohort.group.subscription import Subscription, encode_assignment, encode_subscription
from kohort.types import TopicPartition
from tests.group.coordinator.migration.dialogue import MixedDialogue

NUMBERS = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["t", "nowhere", ""]), NUMBERS), max_size=6
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.frozensets(st.sampled_from(["t", "nowhere", "", "\0"])),
    owned=PARTITIONS,
    generation=NUMBERS,
    user_data=st.none() | st.binary(max_size=20),
    rack_id=st.none() | st.text(max_size=3),
).map(encode_subscription)
ASSIGNMENTS = PARTITIONS.map(encode_assignment)


def cut(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return whole | st.builds(lambda data, end: data[:end], whole, st.integers(0, 60))


FOREIGN_SUBSCRIPTIONS = st.binary(max_size=60) | cut(SUBSCRIPTIONS)
FOREIGN_ASSIGNMENTS = st.binary(max_size=60) | cut(ASSIGNMENTS)


@given(metadata=FOREIGN_SUBSCRIPTIONS)
def test_k45_a_consumer_group_goes_on_whatever_a_classic_member_joins_with(metadata: bytes) -> None:
    group = MixedDialogue()
    group.settled("z")
    token = group.join(instance="s", protocols=[("range", metadata)])
    answer = group.answers[token]
    codes = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_MEMBER_ID)
    assert answer.error_code in codes
    group.converge("z")
    epoch = group.member("z").epoch
    assert group.heartbeat("z", epoch).error_code == ErrorCode.NONE
    group.reload()
    assert group.heartbeat("z", epoch).error_code == ErrorCode.NONE


@given(metadata=FOREIGN_SUBSCRIPTIONS, assignment=FOREIGN_ASSIGNMENTS)
def test_k41_a_classic_group_goes_on_whatever_its_bytes_are(
    metadata: bytes, assignment: bytes
) -> None:
    """It migrates or stays, and in neither case is a member removed."""
    group = MixedDialogue()
    token = group.join(instance="s", protocols=[("range", metadata)])
    group.advance(200)
    joined = group.answers[token]
    given_out = {joined.member_id: assignment}
    group.sync_token(joined.member_id, joined.generation_id, given_out)
    answer = group.enter("z", "t")
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    code = group.beat(joined.member_id, joined.generation_id, "s")
    assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    if answer.error_code == ErrorCode.NONE:
        group.converge("z")
        owners = [each for claims in group.group.owners.values() for each in claims.values()]
        assert all(len(each) == 1 for each in owners)
    else:
        assert code == ErrorCode.NONE
    group.check_log()

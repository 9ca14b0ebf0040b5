"""A group's own settings (K57)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.shard import Shard
from kohort.group.events import Cause, MemberLeft
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue
from tests.group.coordinator.dialogue import GROUP

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
SET, DELETE, APPEND = 0, 1, 2


class Admin(ConsumerDialogue):
    """A group, and an administrator that changes its settings."""

    def change(
        self, *operations: tuple[str, int, str | None], validate_only: bool = False
    ) -> AlterConfigsResourceResponse:
        configs = (
            AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in operations
        )
        resource = AlterConfigsResource(
            resource_type=32, resource_name=GROUP, configs=tuple(configs)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        answer: IncrementalAlterConfigsResponse = self.get(request)
        return answer.responses[0]

    def set(self, **values: int) -> None:
        names = {"session": SESSION, "heartbeat": HEARTBEAT, "interval": INTERVAL}
        operations = ((names[name], SET, str(value)) for name, value in values.items())
        assert self.change(*operations).error_code == 0

    def own(self) -> dict[str, str]:
        return dict(self.shard.log.group_configs.get(GROUP, {}))


@pytest.fixture
def group() -> Admin:
    admin = Admin()
    admin.topics(t=4)
    return admin


def test_k57_the_next_heartbeat_meets_the_new_interval(group: Admin) -> None:
    group.settled("a")
    group.set(heartbeat=6_000)
    answer = group.heartbeat("a", group.member("a").epoch)
    assert answer.heartbeat_interval_ms == 6_000
    other = group.heartbeat(
        "b", 0, group_id="g2", held={}, rebalance_timeout_ms=1, subscribed_topic_names=()
    )
    assert other.heartbeat_interval_ms == 5_000


def test_k57_a_session_is_as_long_as_the_group_says_from_the_next_heartbeat_on(
    group: Admin,
) -> None:
    group.settled("a")
    group.set(session=60_000)
    group.advance(44_000)
    group.heartbeat("a", group.member("a").epoch)
    group.advance(59_000)
    assert "a" in group.group.members
    group.advance(1_001)
    assert "a" not in group.group.members
    left = [each for each in group.observed if isinstance(each, MemberLeft)]
    assert [each.cause for each in left] == [Cause.SESSION_EXPIRED]


def test_k57_targets_are_made_as_seldom_as_the_group_says(group: Admin) -> None:
    group.set(interval=10_000)
    group.settled("a")
    group.enter("b", "t")
    assert group.group.state.value == "Assigning"
    group.advance(10_001)
    group.converge("a", "b")
    assert len(group.has("b")["t"]) == 2


def test_k57_what_is_taken_back_is_the_brokers_again(group: Admin) -> None:
    group.set(heartbeat=6_000, session=50_000)
    assert group.change((HEARTBEAT, DELETE, None)).error_code == 0
    assert group.own() == {SESSION: "50000"}
    assert group.enter("a", "t").heartbeat_interval_ms == 5_000
    assert group.change((SESSION, DELETE, None)).error_code == 0
    assert GROUP not in group.shard.log.group_configs


def test_k57_settings_outlive_the_coordinator_and_the_group(group: Admin) -> None:
    group.settled("a")
    group.set(session=50_000)
    group.heartbeat("a", -1)
    assert group.delete() is ErrorCode.NONE
    shard: Shard = group.loaded()
    assert dict(shard.log.group_configs[GROUP]) == {SESSION: "50000"}
    assert GROUP not in shard.log.consumer_groups
    assert shard.session.group_ids(shard.log) == []


@pytest.mark.parametrize(
    "operations",
    [
        [(SESSION, SET, "44999")],
        [(SESSION, SET, "60001")],
        [(SESSION, SET, "soon")],
        [(SESSION, SET, "")],
        [(HEARTBEAT, SET, "4999")],
        [(HEARTBEAT, SET, "15001")],
        [(INTERVAL, SET, "-1")],
        [(INTERVAL, SET, "15001")],
        [(SESSION, APPEND, "50000")],
        [("consumer.nonsense", SET, "1")],
        [(HEARTBEAT, SET, "6000"), (SESSION, SET, "1")],
    ],
)
def test_k57_what_cannot_be_changes_nothing(
    group: Admin, operations: list[tuple[str, int, str]]
) -> None:
    assert group.change(*operations).error_code == ErrorCode.INVALID_CONFIG
    assert group.own() == {}


def test_k57_no_session_is_shorter_than_the_heartbeats_are_apart() -> None:
    group = Admin(group_consumer_min_session_timeout_ms=1_000)
    for session in ("5000", "4999"):
        assert group.change((SESSION, SET, session)).error_code == ErrorCode.INVALID_CONFIG
    assert group.change((SESSION, SET, "5001")).error_code == 0


def test_k57_it_can_be_asked_what_would_be(group: Admin) -> None:
    assert group.change((SESSION, SET, "50000"), validate_only=True).error_code == 0
    assert group.change((SESSION, SET, "1"), validate_only=True).error_code != 0
    assert group.own() == {}


def test_k57_a_value_of_other_bounds_is_brought_within_todays(group: Admin) -> None:
    group.set(session=50_000)
    group.reload(group_consumer_max_session_timeout_ms=46_000)
    group.settled("a")
    group.advance(46_001)
    assert "a" not in group.group.members


def test_k57_who_coordinates_no_more_says_so() -> None:
    group = Admin()
    group.shard = Shard(group.shard.config)
    assert group.change((SESSION, SET, "50000")).error_code == ErrorCode.NOT_COORDINATOR

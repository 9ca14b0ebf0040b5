"""What `kohort region` says of a region whose log tells of more than there is.

The tests write the logs: operators that were killed are those that have no member in the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, cast

import pytest
from immutables import Map
from rich.console import Console

from kohort.cli.region import _look
from kohort.cli.region_views import exit_code, marks, seen, shown_sight
from kohort.client import Consumer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import ErrorCode, KafkaError
from kohort.region.inspecting import Sight
from kohort.region.log.control import ControlLog
from kohort.region.machines.records import (
    Claim,
    Complete,
    Contribution,
    Controller,
    Drain,
    Lost,
    OperatorId,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    RegionSettled,
    Registered,
    Reset,
    ResetDone,
    Start,
)
from kohort.types import TopicPartition
from kohort.values import replace
from tests.cli.running import ran_text
from tests.region.regions import eventually, produce

A, B, C = (OperatorId(name, "1" * 32) for name in "abc")
P, Q = (RegionPartition("t", "id", number) for number in (0, 1))


def client_of(who: OperatorId) -> str:
    return f"{who.name}.{who.incarnation[:12]}"


def registered(who: OperatorId, after: int) -> Registered:
    return Registered(who, after, "host", "1", client_of(who))


def two(group_id: str) -> list[RegionRecord]:
    """Return the log of a region in which a owns P, and b owns Q."""
    return [
        RegionSettled("w", RegionSettings(group_id=group_id)),
        Controller(1, "c"),
        registered(A, 2),
        registered(B, 3),
        Claim(A, 1, frozenset({P})),
        Claim(B, 1, frozenset({Q})),
        Start(A, 2, P, 0),
        Start(B, 2, Q, 0),
    ]


def checkpoint(number: int) -> list[RegionRecord]:
    """Return the records of a checkpoint that is complete and not published."""
    given = (
        Contribution(who, 2 + number, number, 1, Map({place: number}), output=f"{who}@{number}")
        for who, place in ((A, P), (B, Q))
    )
    return [Drain(1, "c", number, 1), *given, Complete(1, "c", number, 1)]


def written(address: str, region: str, records: Sequence[RegionRecord]) -> None:
    async def write() -> None:
        log = ControlLog(region, {"bootstrap_servers": address})
        await log.open()
        await log.append(records)
        await log.close()

    asyncio.run(write())


@contextmanager
def joined(address: str, topic: str, *operators: OperatorId) -> Iterator[None]:
    """Have members in the group that pass for operators."""
    members = [
        Consumer(bootstrap_servers=address, group_id=f"group-{topic}", client_id=client_of(who))
        for who in operators
    ]
    try:
        for each in members:
            each.subscribe([topic])

        def all_have_some() -> bool:
            for each in members:
                each.poll(50)
            return all(each.assignment() for each in members)

        eventually(all_have_some, "all members have partitions")
        yield
    finally:
        for each in members:
            each.close()


def status(region: str, address: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, what JSON has, and what a person reads, in one line."""
    sight = looked(region, address)
    console = Console(file=StringIO(), width=200)
    console.print(shown_sight(region, sight))
    shown = cast("StringIO", console.file).getvalue()
    return exit_code(sight), seen(region, sight), " ".join(shown.split())


def looked(region: str, address: str) -> Sight:
    return asyncio.run(_look(region, {"bootstrap_servers": address}))


def test_a_region_whose_operators_were_all_killed_does_not_run(address: str, topic: str) -> None:
    spare = registered(C, 4)
    written(address, topic, [*two(f"group-{topic}")[:4], spare, *two(f"group-{topic}")[4:]])
    code, said, shown = status(topic, address)
    assert code == 4
    told = f"no operator is running, none is in group group-{topic} (they were killed)"
    assert told in said["waits_for"]
    assert "continues from checkpoint 0" in shown
    assert [each["gone"] for each in said["operators"]] == [True, True, True]
    assert shown.count(" gone") == 3
    done = ran_text("region", "status", topic, "-b", address)
    assert done.returncode == 4
    assert "no operator is running, none" in done.stdout
    drained = ran_text("region", "drain", topic, "-b", address, "--timeout", "2")
    assert drained.returncode == 1
    assert f"the drain did not happen within 2 s: {told}" in drained.stderr


def test_an_operator_that_was_killed_is_named(address: str, topic: str) -> None:
    written(address, topic, two(f"group-{topic}"))
    with joined(address, topic, A):
        code, said, shown = status(topic, address)
    assert code == 3
    told = f"waits for the eviction of operators that are no longer in group group-{topic}: {B}"
    assert said["waits_for"] == told
    assert [each["gone"] for each in said["operators"]] == [False, True]
    assert "t-1 - 0 B gone" in shown
    assert "t-0 - 0 B ok" in shown


def test_the_region_does_not_wait_for_one_that_is_gone_and_owns_nothing(
    address: str, topic: str
) -> None:
    """After a reset, until the controller evicts it."""
    records = two(f"group-{topic}")
    records += [Lost(A, 3, frozenset({P})), Reset(1, "c", 2, False, ""), ResetDone(B, 3, 2)]
    written(address, topic, records)
    with joined(address, topic, B):
        code, said, _ = status(topic, address)
    assert (code, said["waits_for"]) == (0, "it is processing")
    assert [each["gone"] for each in said["operators"]] == [True, False]


def test_operators_that_are_in_the_group_or_about_to_join_are_not_gone(
    address: str, topic: str
) -> None:
    records = two(f"group-{topic}")
    written(address, topic, records)
    with joined(address, topic, A, B):
        written(address, topic, [registered(C, len(records))])
        code, said, _ = status(topic, address)
    assert code == 0
    assert [each["gone"] for each in said["operators"]] == [False, False, False]


def test_the_first_operator_of_a_region_is_not_gone_before_it_joins(
    address: str, topic: str
) -> None:
    written(address, topic, two(f"group-{topic}")[:3])
    assert status(topic, address)[0] == 0


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Reconciling"])
def test_nobody_is_missed_while_the_group_rebalances(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Members that live may be missing for a moment."""
    written(address, topic, two(f"group-{topic}"))
    describe = AsyncAdminClient.describe_groups

    async def rebalancing(admin: AsyncAdminClient, group_ids: Sequence[str]) -> Any:
        found = await describe(admin, group_ids)
        return {name: type(each)(name, state, "", "", ()) for name, each in found.items()}

    with joined(address, topic, A):
        monkeypatch.setattr(AsyncAdminClient, "describe_groups", rebalancing)
        sight = looked(topic, address)
    assert (sight.gone, sight.problem) == ((), "")


@pytest.mark.parametrize(
    ("count", "code", "told"),
    [
        (1, 0, "checkpoint 1 is being published"),
        (2, 0, "checkpoint 1 is being published, and 1 later one waits behind it"),
        (6, 3, "checkpoint 1 is being published, and 5 later ones wait behind it"),
    ],
)
def test_output_that_does_not_become_visible_is_told(
    address: str, topic: str, count: int, code: int, told: str
) -> None:
    records = two(f"group-{topic}")
    for number in range(1, count + 1):
        records += checkpoint(number)
    written(address, topic, records)
    with joined(address, topic, A, B):
        found, said, shown = status(topic, address)
    assert found == code
    assert said["waits_for"].startswith(told)
    assert len(said["unpublished"]) == count
    problem = "the output of 6 complete checkpoints, 1 to 6, is not visible"
    assert (problem in str(said["problem"])) == (problem in shown) == (count > 5)
    assert said["strangers"] == []


def test_operators_that_a_checkpoint_waits_for_are_named_with_for_how_long(
    address: str, topic: str
) -> None:
    written(address, topic, [*two(f"group-{topic}"), Drain(1, "c", 1, 1)])
    with joined(address, topic, A, B):
        code, said, shown = status(topic, address)
    assert code == 0
    assert said["waits_for"] == f"checkpoint 1 waits for {A}, {B}"
    assert 0 <= said["waiting_s"] < 60
    assert f"checkpoint 1 waits for {A}, {B} (for {said['waiting_s']} s)" in shown


def test_forced_resets_are_counted_and_others_are_not(address: str, topic: str) -> None:
    """A worker that crashes again and again forces a reset each time, without an end."""
    records = two(f"group-{topic}")
    for attempt in (2, 3):
        again = registered(OperatorId("b", str(attempt) * 32), len(records))
        claim = Claim(again.operator, 1, frozenset({Q}))
        records += [again, claim, Reset(1, "c", attempt, True, ""), ResetDone(A, attempt, attempt)]
    records += [Reset(1, "c", 4, False, "")]
    written(address, topic, records)
    with joined(address, topic, A):
        _, said, shown = status(topic, address)
    assert said["forced_resets"] == 2
    assert f"FORCED RESETS 2 since {said['forced_resets_since']}; max_resets" in shown


def test_a_topic_that_members_name_and_that_is_not_there_is_told(address: str, topic: str) -> None:
    written(address, topic, two(f"group-{topic}"))
    missing = f"{topic}-flihgts"
    with Consumer(
        bootstrap_servers=address,
        group_id=f"group-{topic}",
        client_id=client_of(A),
        allow_auto_create_topics=False,
    ) as member:
        member.subscribe([topic, missing])

        def has_joined() -> bool:
            member.poll(50)
            return bool(member.assignment())

        eventually(has_joined, "it is in the group")
        _, said, shown = status(topic, address)
    assert said["missing_topics"] == [missing]
    assert f"WARNING: there is no topic {missing}, or this user may not see it" in shown


def test_a_checkpoint_that_has_all_contributions_is_being_completed(
    address: str, topic: str
) -> None:
    """The phase is DRAINING until the controller completes it: it is not only processing."""
    written(address, topic, [*two(f"group-{topic}"), *checkpoint(1)[:-1]])
    with joined(address, topic, A, B):
        code, said, _ = status(topic, address)
    assert (code, said["phase"]) == (0, "DRAINING")
    assert said["waits_for"] == "checkpoint 1 is being completed"


def test_operators_have_the_condition_that_the_page_shows(address: str, topic: str) -> None:
    records = [*two(f"group-{topic}"), *checkpoint(1)[:2]]
    written(address, topic, records)
    with joined(address, topic, A, B):
        _, said, shown = status(topic, address)
    conditions = ["ok", "drains for checkpoint 1"]
    assert [each["condition"] for each in said["operators"]] == conditions
    assert conditions[1] in shown


def test_lag_and_state_size_are_those_of_the_last_checkpoint(address: str, topic: str) -> None:
    produce(address, topic, 2, 20)
    one, other = (RegionPartition(topic, "id", number) for number in (0, 1))
    given = Contribution(A, 4, 1, 1, Map({one: 4}), states=Map({one: "7:2048:x"}))
    records = [
        *two(f"group-{topic}")[:4],
        Claim(A, 1, frozenset({one})),
        Claim(B, 1, frozenset({other})),
        Start(A, 2, one, 0),
        Drain(1, "c", 1, 1),
        given,
        Contribution(B, 4, 1, 1),
        Complete(1, "c", 1, 1),
    ]
    written(address, topic, records)
    with joined(address, topic, A, B):
        _, said, shown = status(topic, address)
    assert [(each["lag"], each["state_bytes"]) for each in said["operators"]] == [
        (6, 2048), (None, 0),
    ]  # fmt: skip
    assert [each["lag"] for each in said["partitions"]] == [6, None]
    assert "PARTITIONS LAG STATE SIZE STATE" in shown
    assert f"{topic}-0 6 2.0 KiB ok" in shown
    assert f"{topic}-1 - 0 B ok" in shown


def test_ends_that_cannot_be_asked_for_are_told(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right to read it")

    written(address, topic, two(f"group-{topic}"))
    with joined(address, topic, A, B):
        monkeypatch.setattr(ControlLog, "ends", refuse)
        code, said, shown = status(topic, address)
    assert (code, [each["lag"] for each in said["operators"]]) == (0, [None, None])
    assert "the lag is unknown: " in said["problem"]
    assert "WARNING: the lag is unknown: " in shown
    assert said["strangers"] == []


def test_a_watch_shows_only_what_has_changed_but_for_times_and_lag(
    address: str, topic: str
) -> None:
    written(address, topic, two(f"group-{topic}"))
    with joined(address, topic, A, B):
        sight = looked(topic, address)
        other = replace(sight, waiting_s=7, ends={TopicPartition("t", 0): 9})
        assert marks(topic, sight) == marks(topic, other)
        assert marks(topic, sight) != marks(topic, replace(sight, problem="a group"))

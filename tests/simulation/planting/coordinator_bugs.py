"""Bugs of the classic coordinator."""

from __future__ import annotations

from typing import Any

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.group import ClassicDecision, member_error
from kohort.group.coordinator.classic.join import park_join
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.events import (
    LoadFinished,
    RequestArrived,
    SessionExpired,
    Unload,
)
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.session import ShardDecision
from kohort.group.events import Cause
from kohort.values import replace
from kohort.wire.messages.group_records import OffsetCommitValue
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchResponse
from tests.simulation.planting.bug import afterwards, bug, ignored, instead, never, unguarded

_T = CLASSIC_GROUP
_BEAT, _SYNC, _JOIN = HeartbeatRequest, SyncGroupRequest, JoinGroupRequest
_COMMIT, _LEAVE = OffsetCommitRequest, LeaveGroupRequest


def _is_stranger(decision: ClassicDecision, arrived: RequestArrived[Any]) -> bool:
    """A guard that looks at the member, and forgets the generation."""
    request = arrived.request
    return member_error(decision.group, request.member_id, request.group_instance_id) is not None


def _forget_records(decision: ClassicDecision, _event: object) -> None:
    decision.records.clear()


def _complete_at_once(decision: ClassicDecision, join: RequestArrived[JoinGroupRequest]) -> None:
    member_id = join.request.member_id
    rebalance.refuse_parked(decision, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    decision.group = park_join(decision.group, join, member_id)
    rebalance.complete(decision)


def _rotate_assignments(decision: ClassicDecision, _event: object) -> None:
    answers = [r.response for r in decision.replies if isinstance(r.response, SyncGroupResponse)]
    rotated = [*answers[1:], *answers[:1]]
    decision.replies = [
        replace(reply, response=other)
        for reply, other in zip(decision.replies, rotated, strict=False)
    ]


def _remove_only(decision: ClassicDecision, expired: SessionExpired) -> None:
    rebalance.remove_member(decision, expired.member_id, Cause.SESSION_EXPIRED)


def _answer_twice(decision: ClassicDecision, _event: object) -> None:
    decision.replies += decision.replies


def _shift_offsets(decision: ClassicDecision, _event: object) -> None:
    decision.records = [
        replace(record, value=replace(record.value, offset=record.value.offset + 1))
        if isinstance(record.value, OffsetCommitValue)
        else record
        for record in decision.records
    ]


def _cross_partitions(decision: ClassicDecision, _event: object) -> None:
    keys = [record.key for record in decision.records]
    rotated = [*keys[1:], *keys[:1]]
    decision.records = [replace(r, key=k) for r, k in zip(decision.records, rotated, strict=True)]


def _forget_positions(decision: ShardDecision, _event: object) -> None:
    for index, reply in enumerate(decision.replies):
        if isinstance(reply.response, OffsetFetchResponse):
            groups = tuple(
                replace(
                    group,
                    topics=tuple(
                        replace(
                            topic,
                            partitions=tuple(
                                replace(entry, committed_offset=-1) for entry in topic.partitions
                            ),
                        )
                        for topic in group.topics
                    ),
                )
                for group in reply.response.groups
            )
            decision.replies[index] = replace(
                reply, response=replace(reply.response, groups=groups)
            )


def _only_answer(decision: ClassicDecision, arrived: RequestArrived[HeartbeatRequest]) -> None:
    response = HeartbeatResponse(error_code=ErrorCode.NONE)
    decision.reply(arrived.token, response, arrived.version)


def _lose_assignments(decision: ClassicDecision, _event: object) -> None:
    decision.records.clear()
    decision.write_group({})


def _keep_old_generation(decision: ClassicDecision, _event: object) -> None:
    if decision.records or decision.group.joining:
        return
    decision.group = replace(decision.group, generation=decision.group.generation - 1)


def _forget_leader(decision: ClassicDecision, _event: object) -> None:
    if decision.group.members:
        decision.group = replace(decision.group, leader="nobody")


def _forget_static(decision: ClassicDecision, _event: object) -> None:
    decision.group = replace(decision.group, static=Map())


def _drop_parked(decision: ClassicDecision, _event: object) -> None:
    decision.group = replace(decision.group, joining=Map())


def _go_back(decision: ClassicDecision, _event: object) -> None:
    if decision.group.generation > 3:
        decision.group = replace(decision.group, generation=decision.group.generation - 3)


def _plant_part_1() -> None:
    bug(
        "stale heartbeat",
        "a heartbeat of an older generation is accepted",
        unguarded(_T, _BEAT, "refuse", _is_stranger),
    )
    bug(
        "stale sync",
        "a SyncGroup of an older generation is accepted",
        unguarded(_T, _SYNC, "refuse", _is_stranger),
    )
    bug(
        "stale commit",
        "a commit of an older generation is accepted",
        unguarded(_T, _COMMIT, "refuse", _is_stranger),
    )
    bug(
        "no wait",
        "the first member that joins again ends the first phase for all",
        instead(_T, _JOIN, "rejoin", _complete_at_once),
    )
    bug(
        "assignment unwritten",
        "an assignment is answered before it is in the log",
        afterwards(_T, _SYNC, "assign", _forget_records),
    )
    bug(
        "commit unwritten",
        "a commit is confirmed and not written",
        afterwards(_T, _COMMIT, "store_and_stay", _forget_records),
    )
    bug(
        "generation kept",
        "members get a new generation, the group keeps the old one",
        afterwards(_T, _JOIN, "rejoin", _keep_old_generation),
    )
    bug(
        "assignments mixed up",
        "each member gets the assignment of the next one",
        afterwards(_T, _SYNC, "assign", _rotate_assignments),
    )
    bug("immortal members", "no session ever ends", ignored(_T, SessionExpired, "expire_member"))


def _plant_part_2() -> None:
    bug(
        "silent removal",
        "a dead member is removed and there is no rebalance",
        instead(_T, SessionExpired, "expire_member", _remove_only),
    )
    bug("leave unheard", "LeaveGroup has no effect and no answer", ignored(_T, _LEAVE, "leave"))
    bug(
        "unload in silence",
        "waiting requests are not answered at an unload",
        ignored(_T, Unload, "release"),
    )
    bug(
        "static amnesia",
        "a static member that comes back has no assignment",
        afterwards(_T, _JOIN, "swap_quietly", _lose_assignments),
    )
    bug(
        "static forgotten",
        "the group forgets which members are static",
        afterwards(_T, _JOIN, "swap_quietly", _forget_static),
    )
    bug(
        "no sessions after load",
        "after a load the members have no sessions",
        ignored(_T, LoadFinished, "restart_sessions"),
    )
    bug(
        "off by one",
        "a position is stored one too high",
        afterwards(_T, _COMMIT, "store_and_stay", _shift_offsets),
    )
    bug(
        "partitions crossed",
        "a position is stored for another partition",
        afterwards(_T, _COMMIT, "store_and_stay", _cross_partitions),
    )
    bug(
        "positions forgotten",
        "stored positions are answered as if there were none",
        afterwards(SHARD, RequestArrived, "answer", _forget_positions),
    )


def _plant_part_3() -> None:
    bug(
        "answered twice",
        "a heartbeat is answered twice",
        afterwards(_T, _BEAT, "accept", _answer_twice),
    )
    bug(
        "headless",
        "the leader leaves and is not replaced",
        afterwards(_T, _LEAVE, "leave", _forget_leader),
    )
    bug(
        "heartbeats unheard",
        "a heartbeat does not renew the session",
        instead(_T, _BEAT, "accept", _only_answer),
    )
    bug(
        "rebalance untold",
        "heartbeats do not tell of a rebalance",
        instead(_T, _BEAT, "call_back", _only_answer),
    )
    bug(
        "join dropped",
        "a join that is parked again is forgotten",
        afterwards(_T, _JOIN, "rejoin", _drop_parked),
    )
    bug(
        "generations go back",
        "a group that lost a member counts its generations back",
        afterwards(_T, SessionExpired, "expire_member", _go_back),
    )
    bug(
        "strangers sync",
        "SyncGroup does not ask who it comes from",
        unguarded(_T, _SYNC, "refuse", never),
    )


def plant_all() -> None:
    """Register the bugs of this file."""
    _plant_part_1()
    _plant_part_2()
    _plant_part_3()

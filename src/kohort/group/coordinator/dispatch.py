"""The routing of requests to kinds of group.

Requests that all kinds serve alike (fetching positions, describing, listing, deleting several
groups) are answered here, by calling the groups' methods.
"""

from __future__ import annotations

from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import LoadFinished, RequestArrived, Unload
from kohort.group.coordinator.fetch import fetch
from kohort.group.coordinator.kind import Answer
from kohort.group.coordinator.kinds import KINDS
from kohort.group.coordinator.refusals import (
    ALL_OPERATIONS,
    group_id_of,
    needs_group_id,
    refuse,
)
from kohort.group.coordinator.services import pending_commit
from kohort.group.coordinator.session import ShardDecision
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest


def answer(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Answer a request, or have the group park it.

    Raises:
        KeyError: The request is not of the group APIs, so the shell must not pass it here.
    """
    shard.wall_ms = arrived.wall_ms
    trigger = type(arrived.request)
    api = KINDS.apis.get(trigger)
    if api is None:
        take = _SHARED.get(trigger) or KINDS.answers[trigger]
        take(shard, arrived)
        return
    error = api.check(arrived)
    if error is not None:
        refuse_all(shard, arrived, error)
        return
    run_group(shard, group_id_of(arrived), trigger, arrived)


def run_group(shard: ShardDecision, group_id: str, trigger: type[object], event: object) -> None:
    """Run a request or a deadline on one group, and collect its effects.

    A deadline that does not apply to the group's kind is ignored (D16).
    """
    serve = KINDS.serving(shard.session, shard.log, group_id, trigger)
    if serve is not None:
        serve(shard, group_id, event)
    elif isinstance(event, RequestArrived):
        shard.reply(event, KINDS.apis[type(event.request)].elsewhere(event))


def refuse_all(shard: ShardDecision, arrived: RequestArrived[Message], code: ErrorCode) -> None:
    """Refuse any request."""
    request = cast("Request[Message]", arrived.request)
    shard.reply(arrived, refuse(request, arrived.version, code))


# ------------------------------------------------------------------------------ all groups together


def load(shard: ShardDecision, event: LoadFinished) -> None:
    """C72: restore every group, each with its own kind."""
    for kind in KINDS.all:
        for group_id in sorted(kind.ids(shard.session, shard.log)):
            if KINDS.of(shard.session, shard.log, group_id) is kind:
                kind.load(shard, group_id, event)


def unload(shard: ShardDecision, event: Unload) -> None:
    """C73: answer parked requests."""
    for kind in KINDS.all:
        kind.unload(shard, event)


def hear(shard: ShardDecision, event: object) -> None:
    """Pass an event of the shard to the kinds that handle it."""
    for kind in KINDS.all:
        take = kind.hears.get(type(event))
        if take is not None:
            take(shard, event)


def requests() -> frozenset[type[Message]]:
    """Return all requests that a shard answers."""
    return frozenset({*KINDS.apis, *KINDS.answers, *_SHARED})


# --------------------------------------------------------------------------- what all kinds serve


def _commit(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C4: accept an empty group id, which old clients without a group send in commits."""
    run_group(shard, group_id_of(arrived), OffsetCommitRequest, arrived)


def _commit_in_transaction(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C53: write positions that take effect when the producer's transaction commits (KIP-447)."""
    request = cast("TxnOffsetCommitRequest", arrived.request)
    group = KINDS.group(shard.session, shard.log, request.group_id)
    error = group.transactional_commit_error(request)
    if error is not None:
        refuse_all(shard, arrived, error)
        return
    records, response = pending_commit(request, shard.config, arrived.wall_ms)
    shard.records += records
    shard.reply(arrived, response)


def _delete_offsets(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    error = needs_group_id(arrived)
    if error is None:
        run_group(shard, group_id_of(arrived), OffsetDeleteRequest, arrived)
    else:
        refuse_all(shard, arrived, error)


def _fetch(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    request = cast("OffsetFetchRequest", arrived.request)
    errors = {
        entry.group_id: error
        for entry in request.groups
        if (error := KINDS.group(shard.session, shard.log, entry.group_id).fetch_error(entry))
        is not None
    }
    shard.reply(arrived, fetch(shard.log, request, arrived.version, errors))


def _describe(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C58: describe groups without changing them."""
    request = cast("DescribeGroupsRequest", arrived.request)
    described = [
        KINDS.group(shard.session, shard.log, group_id).described(shard.log, arrived.version)
        for group_id in request.groups
    ]
    if request.include_authorized_operations:
        described = [
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS)
            for group in described
        ]
    shard.reply(arrived, DescribeGroupsResponse(groups=tuple(described)))


def _list(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    request = cast("ListGroupsRequest", arrived.request)
    ids = KINDS.ids(shard.session, shard.log)
    listed = (KINDS.group(shard.session, shard.log, group_id).listed() for group_id in ids)
    passed = tuple(entry for entry in listed if _passes(entry, request))
    shard.reply(arrived, ListGroupsResponse(error_code=ErrorCode.NONE, groups=passed))


def _passes(entry: ListedGroup, request: ListGroupsRequest) -> bool:
    """Return whether a group passes the filters, which ignore case (C59; KIP-518, KIP-848)."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return (not states or entry.group_state.lower() in states) and (
        not types or entry.group_type.lower() in types
    )


def _delete(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Delete each named group once, and answer for all together."""
    names = cast("DeleteGroupsRequest", arrived.request).groups_names
    for group_id in dict.fromkeys(names):
        alone = replace(arrived, request=DeleteGroupsRequest(groups_names=(group_id,)))
        run_group(shard, group_id, DeleteGroupsRequest, alone)
    answers = [reply.response for reply in shard.replies if reply.token == arrived.token]
    # Requests parked in a deleted group are answered too.
    shard.replies = [reply for reply in shard.replies if reply.token != arrived.token]
    results = tuple(
        result for each in answers for result in cast("DeleteGroupsResponse", each).results
    )
    shard.reply(arrived, DeleteGroupsResponse(results=results))


_SHARED: dict[type[Message], Answer] = {
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _commit_in_transaction,
    OffsetDeleteRequest: _delete_offsets,
    OffsetFetchRequest: _fetch,
    DescribeGroupsRequest: _describe,
    ListGroupsRequest: _list,
    DeleteGroupsRequest: _delete,
}

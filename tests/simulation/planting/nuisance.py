"""Answers at rare moments, to aim a run at rows that few seeds take.

The answer to a commit or heartbeat may be slow, or come from a former coordinator, and then meet
its member in any state. By chance that takes thousands of seeds, so here such answers are made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kohort.errors import ErrorCode, KohortError
from kohort.group.member.events import (
    CommitAnswered,
    CoordinatorLost,
    ResponseArrived,
    TopicsNamed,
)
from kohort.simulation.engine import Stream
from kohort.types import OffsetAndMetadata
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.draft import DraftHeartbeatResponse, DraftJoinGroupResponse
from kohort.wire.messages.membership import HeartbeatResponse, JoinGroupResponse

if TYPE_CHECKING:
    from kohort.simulation.groups.client import Client
    from kohort.simulation.groups.world import World
    from kohort.wire.codec.schema import Message

_EVERY_MS = 200
# How much of a run passes before this begins, so that there is a group.
_FIRST_MS = 20_000
_CODES = (
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_CONSUMER_CODES = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.REQUEST_TIMED_OUT,
)
# States at rest, in which a member is left alone, or there would be no group at all.
_AT_REST = frozenset({"STABLE", "PART_OF_GROUP"})


def annoy(world: World) -> None:
    """Make answers up, until faults stop."""
    chance = Stream(world.scenario.seed, "nuisance", "")
    world.engine.at(_FIRST_MS, None, _act, world, chance)


def _act(world: World, chance: Stream) -> None:
    if world.calm:
        return
    for client in world.living():
        number, code = chance.between(0, 3), chance.choice(_CODES)
        rests = client.machine.state.name in _AT_REST
        if not rests or chance.happens(0.02):
            _annoy(client, number, code, chance)
    world.engine.after(_EVERY_MS, None, _act, world, chance)


def _annoy(client: Client, number: int, code: ErrorCode, chance: Stream) -> None:
    session: Any = client.machine.session
    if number == 0 and client.machine.member_id:
        client.tell(CommitAnswered(client.machine.identity, code))
    elif number == 1:
        _answer_heartbeat(client, session, code, chance)
    elif number == 2:
        _commit(client)
    elif chance.happens(0.3):
        client.tell(CoordinatorLost("made up"))
        if client.protocol.has_epochs and client.alive:
            client.tell(TopicsNamed({}))
    elif chance.happens(0.1):
        _answer_join(client, session)


def _answer_heartbeat(client: Client, session: Any, code: ErrorCode, chance: Stream) -> None:
    if session.heartbeat is None:
        return
    answer: Message = HeartbeatResponse(error_code=code)
    if client.protocol.has_epochs:
        epoch = chance.choice((0, 0, session.epoch))
        bad = ErrorCode.NONE if epoch == 0 else chance.choice(_CONSUMER_CODES)
        answer = ConsumerGroupHeartbeatResponse(
            error_code=bad,
            member_id=session.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
        )
    elif client.protocol.name == "draft":
        answer = DraftHeartbeatResponse(error_code=code)
    client.tell(ResponseArrived(session.heartbeat.token, answer))


def _answer_join(client: Client, session: Any) -> None:
    """A coordinator that chooses an assignor which no member has named."""
    request = session.request
    if request is None or client.machine.state.name not in _WAITS_FOR_JOIN:
        return
    answer: Message = JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="nobody's",
        leader="",
        member_id="somebody",
        members=(),
    )
    if client.protocol.name == "draft":
        answer = DraftJoinGroupResponse(error_code=ErrorCode.NONE, group_id="", consumer_id="")
    client.tell(ResponseArrived(request.token, answer))


_WAITS_FOR_JOIN = frozenset({"PREPARING_REBALANCE", "DISCOVER_COORDINATOR", "STOPPED_CONSUMPTION"})


def _commit(client: Client) -> None:
    """Commit consumed offsets, in any state of the member."""
    application = client.application
    offsets = {
        partition: OffsetAndMetadata(offset)
        for partition, offset in sorted(application.stored.items())
        if partition in application.believes
    }
    if not offsets:
        return
    try:
        request = client.machine.commit_request(offsets)
    except KohortError:
        return
    client.request("group", cast("Message", request), _nobody)


def _nobody(_response: Message | None) -> None:
    """Ignore the answer."""

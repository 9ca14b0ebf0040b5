"""What the machines of one run want done, written down where every host has to pass: their tables.

A trace is a few streams in order: what the coordinator writes and says, and for each member what it
asks, what it is answered, what its application is told and what it says. Two hosts may take turns
differently, so there is no order between streams. What no two hosts can share is taken out: times,
addresses, numbers of requests, ids (which become names), and heartbeats that change nothing.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.machine import Table
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.simulation.coverage import substituted
from kohort.values import replace
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupResponse,
)
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitResponse

Trace: TypeAlias = dict[str, list[str]]

# The group whose members the hosts play.
GROUP = "delays"

_ANSWERS = (
    JoinGroupResponse,
    SyncGroupResponse,
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    ConsumerGroupHeartbeatResponse,
    DraftJoinGroupResponse,
    DraftHeartbeatResponse,
)
# What the coordinator says of one member, while others go their own way.
_OF_ONE = ("MemberReconciled",)
# The lists of their drafts, which become effects.
_OF_COORDINATOR = ("records", "observed", "replies")
_OF_MEMBER = ("sends", "callbacks", "observed", "raised")
_NOT_SHARED = frozenset(
    """now token client_host consumer_host host heartbeat_frequency timeout_ms session_timeout_ms
    session_timeout rebalance_timeout_ms rebalance_timeout heartbeat_interval_ms
    current_state_timestamp commit_timestamp expire_timestamp assignment_timestamp
    metadata_hash""".split()  # noqa: SIM905  # as a list it would take sixteen lines
)
# A broker writes the id of a topic beside a position; who has no topics does not know it.
_OF_BROKERS = frozenset(
    {("OffsetCommitResponseTopic", "topic_id"), ("OffsetCommitValue", "topic_id")}
)


class Recorder:
    """Collects what machines want done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[tuple[str, object]] = []
        self._asked: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._configs: list[object] = []  # alive, so that their ids stay theirs
        self._ids: dict[str, str] = {}

    # -------------------------------------------------------------------------------- recording

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Watch all machines of this process.

        A broker of another test may clean up an empty group meanwhile, so groups are told apart.
        """
        with ExitStack() as watched:
            watched.enter_context(_watched(SHARD, _OF_COORDINATOR, self._coordinator))
            for table in (CLASSIC_MEMBER, CONSUMER_MEMBER, DRAFT_MEMBER):
                watched.enter_context(_watched(table, _OF_MEMBER, self._member))
            yield

    def _coordinator(self, draft: Any, event: object, new: Callable[[str], list[Any]]) -> None:
        with self._lock:
            if isinstance(event, RequestArrived):
                self._asked[event.token] = event.client_id
                self._note_id(event.request, event.client_id)
            self._add("the log has", new("records"))
            self._add("the coordinator says", new("observed"))
            for reply in new("replies"):
                who = self._asked[reply.token]
                if isinstance(reply.response, _ANSWERS):
                    self._note_id(reply.response, who)
                    self._add(f"{who} is answered", [reply.response])

    def _note_id(self, message: object, who: str) -> None:
        member_id = getattr(message, "member_id", "") or getattr(message, "consumer_id", "")
        if member_id:
            self._ids.setdefault(member_id, f"id of {who}")

    def _member(self, draft: Any, _event: object, new: Callable[[str], list[Any]]) -> None:
        with self._lock:
            who = self._names.get(id(draft.config))
            if who is None:  # members start one after the other
                who = self._names[id(draft.config)] = "abcdefgh"[len(self._names)]
                self._configs.append(draft.config)
            self._add(f"{who} asks", [send.request for send in new("sends")])
            self._add(f"{who} is told", new("callbacks"))
            self._add(f"{who} says", new("observed"))
            self._add(f"{who} raises", new("raised"))

    def _add(self, stream: str, values: list[Any]) -> None:
        self._entries += [
            (stream, value)
            for value in values
            if not _is_idle(value) and _group_of(value) in (None, GROUP)
        ]

    # ---------------------------------------------------------------------------------- reading

    @property
    def trace(self) -> Trace:
        """What was recorded, as any host may say it."""
        topics: dict[uuid.UUID, str] = {}
        streams: Trace = {}
        for stream, value in self._entries:
            text = repr(_plain(value, self._ids, topics))
            known = streams.setdefault(stream + self._about(value), [])
            # who is slow to follow hears the same again with its next heartbeat
            if not known or known[-1] != text or not stream.endswith("answered"):
                known.append(text)
        return dict(sorted(streams.items()))

    def _about(self, value: object) -> str:
        """Under KIP-848 nobody waits for others, so what concerns one member has its own order."""
        member_id = getattr(getattr(value, "key", value), "member_id", "")
        member = member_id or getattr(value, "member", "")
        of_coordinator = isinstance(value, GroupRecord) or type(value).__name__ in _OF_ONE
        return f" of {self._ids.get(member, member)}" if member and of_coordinator else ""


def _group_of(value: object) -> str | None:
    """Return the group that a record or an observation of a coordinator is about."""
    about = value.key if isinstance(value, GroupRecord) else value
    group = getattr(about, "group", None) or getattr(about, "group_id", None)
    return group if isinstance(group, str) else None


def _is_idle(value: object) -> bool:
    """Whether it is a heartbeat that only says that somebody is alive, or its answer.

    Who leaves may have one on its way, which is answered when nobody knows him any more.
    """
    match value:
        case HeartbeatRequest() | DraftHeartbeatRequest():
            return True
        case HeartbeatResponse(error_code=code) | DraftHeartbeatResponse(error_code=code):
            return code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        case ConsumerGroupHeartbeatRequest(member_epoch=epoch, topic_partitions=None):
            return epoch > 0
        case ConsumerGroupHeartbeatResponse(error_code=0, assignment=None, member_epoch=epoch):
            return epoch > 0
    return False


@contextmanager
def _watched(
    table: Table[Any, Any],
    lists: tuple[str, ...],
    look: Callable[[Any, object, Callable[[str], list[Any]]], None],
) -> Iterator[None]:
    """Let somebody look at what each row of a table has added to the draft."""

    def watch(handler: Callable[[Any, object], None]) -> Callable[[Any, object], None]:
        def handle(draft: Any, event: object) -> None:
            before = {name: len(getattr(draft, name)) for name in lists}
            handler(draft, event)
            look(draft, event, lambda name: getattr(draft, name)[before[name] :])

        return handle

    rows = [replace(line, handler=watch(line.handler)) for line in table.rows]
    with substituted(table, rows):
        yield


def _plain(value: object, ids: Mapping[str, str], topics: dict[uuid.UUID, str]) -> object:
    """Return a value as plain tuples, without what hosts cannot share."""
    if isinstance(value, Struct):
        kept = [
            (name, _plain(each, ids, topics))
            for name, each in asdict(value).items()
            if name not in _NOT_SHARED and (type(value).__name__, name) not in _OF_BROKERS
        ]
        return (type(value).__name__, *kept)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        for member_id, name in ids.items():
            value = value.replace(member_id, name)
        return value
    if isinstance(value, uuid.UUID):
        return topics.setdefault(value, f"topic {len(topics) + 1}")
    if isinstance(value, Mapping):
        pairs = ((_plain(k, ids, topics), _plain(v, ids, topics)) for k, v in value.items())
        return sorted(pairs, key=repr)
    if isinstance(value, frozenset):
        return sorted((_plain(each, ids, topics) for each in value), key=repr)
    if isinstance(value, tuple) and all(_is_share(each) for each in value):
        shares = (tuple(_plain(part, ids, topics) for part in each) for each in value)
        return sorted(shares, key=repr)  # ids are random, and so is their order
    if isinstance(value, tuple | list):
        return tuple(_plain(each, ids, topics) for each in value)
    return value


def _is_share(value: object) -> bool:
    """Whether it is a member's id and what it has been given."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], tuple)

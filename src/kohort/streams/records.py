"""What the control topic of a stream application says, as values, as bytes and folded; pure.

Each record replaces what was said before about the same task or member, so the topic is compacted.
The log decides nothing about who owns what: that is the group's. It carries what the group has no
room for: where a changelog ended when its owner let go, which topic it is, who is to leave, which
task has failed.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from immutables import Map
from msgspec import Struct

from kohort.errors import LocalProtocolError
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import ControlRecordError
from kohort.types import TopicPartition
from kohort.values import replace

RECORD_BYTES_MAX = 65_536
"""The most that a record may have."""
ERROR_TEXT_MAX = 1_000
"""So much is kept of an error's text."""
_KEY_BYTES_MAX = 1_000
_TASK, _LEAVE, _CHANGELOG = "task/", "leave/", "changelog/"
_PROGRAM = b"program"
_OFFSET_MAX = 2**63 - 1


class TaskRecord(Struct, frozen=True, kw_only=True):
    """Base of what is said of a task.

    Attributes:
        task: The task.
        generation: The generation that its speaker was in.
        member: Member id of the speaker.
        at: When, in milliseconds since the epoch by the speaker's clock.
    """

    task: Task
    generation: int
    member: str
    at: int


class Released(TaskRecord, frozen=True, kw_only=True, tag="released"):
    """The owner processes a task no longer; all that it did is in the changelogs and committed.

    Attributes:
        ends: Up to where each changelog has to be replayed.
        at: When its last record was processed.
    """

    ends: tuple[tuple[str, int, int], ...]

    @property
    def changelog_ends(self) -> dict[TopicPartition, int]:
        """The same by partition."""
        return {TopicPartition(topic, number): end for topic, number, end in self.ends}


class Started(TaskRecord, frozen=True, kw_only=True, tag="started"):
    """The task has a new owner, which processes it.

    Attributes:
        unavailable_ms: For how long nobody did; None: not known.
        restored: Records that were replayed after the grant.
        url: Where its speaker answers queries over HTTP; empty: nowhere.
        after: Member id of the owner before, if it ended or fell out without a release.
    """

    unavailable_ms: int | None
    restored: int
    url: str = ""
    after: str = ""


class Failed(TaskRecord, frozen=True, kw_only=True, tag="failed"):
    """The task raised at its owner and stands still there.

    Attributes:
        error: What it raised.
    """

    error: str


class Leave(Struct, frozen=True, kw_only=True, tag="leave"):
    """A member is to leave the group once others have learned its tasks.

    Attributes:
        member: Its member id.
        at: When that was said, in milliseconds since the epoch.
    """

    member: str
    at: int


class ProgramNoted(Struct, frozen=True, kw_only=True, tag="program"):
    """The program that the members of the application run.

    Attributes:
        digest: What two instances with the same program have in common.
        at: When that was said, in milliseconds since the epoch.
    """

    digest: str
    at: int


class ChangelogNoted(Struct, frozen=True, kw_only=True, tag="changelog"):
    """Which topic a changelog is; one that is made again under its name has another id.

    Attributes:
        topic: Its name.
        topic_id: Its id (KIP-516).
        at: When that was said, in milliseconds since the epoch.
    """

    topic: str
    topic_id: str
    at: int


ControlRecord: TypeAlias = Released | Started | Failed | Leave | ProgramNoted | ChangelogNoted
AnyTaskRecord: TypeAlias = Released | Started | Failed

_DECODER = msgspec.json.Decoder(ControlRecord)


class ControlState(Struct, frozen=True):
    """What the records say together.

    Attributes:
        tasks: The last record of each task.
        released: The last release of each task.
        leaves: The members that are to leave.
        program: The program of the application; None: not said yet.
        changelogs: The ids of its changelogs, by name.
    """

    tasks: Map[Task, AnyTaskRecord] = Map()
    released: Map[Task, Released] = Map()
    leaves: Map[str, Leave] = Map()
    program: ProgramNoted | None = None
    changelogs: Map[str, str] = Map()

    def with_record(self, record: ControlRecord) -> ControlState:
        """Return the state after one more record."""
        if isinstance(record, ProgramNoted):
            return replace(self, program=record)
        if isinstance(record, ChangelogNoted):
            known = self.changelogs.get(record.topic, record.topic_id)  # the first one holds
            return replace(self, changelogs=self.changelogs.set(record.topic, known))
        if isinstance(record, Leave):
            return replace(self, leaves=self.leaves.set(record.member, record))
        state = replace(self, tasks=self.tasks.set(record.task, record))
        if isinstance(record, Released):
            return replace(state, released=state.released.set(record.task, record))
        return state

    def without_leave(self, member: str) -> ControlState:
        """Return the state after a tombstone of a member."""
        kept = {name: each for name, each in self.leaves.items() if name != member}
        return replace(self, leaves=Map(kept))


def key_of(record: ControlRecord) -> bytes:
    """Return the key under which a record replaces older ones."""
    if isinstance(record, Leave):
        return leave_key(record.member)
    if isinstance(record, ProgramNoted):
        return _PROGRAM
    if isinstance(record, ChangelogNoted):
        return f"{_CHANGELOG}{record.topic}".encode()
    return f"{_TASK}{record.task}/{type(record).__name__.lower()}".encode()


def leave_key(member: str) -> bytes:
    """Return the key of what is said about the leaving of a member."""
    return (_LEAVE + member).encode()


def encode_record(record: ControlRecord) -> bytes:
    """Return a record as bytes.

    Raises:
        LocalProtocolError: It is larger than `RECORD_BYTES_MAX`.
    """
    data = msgspec.json.encode(record)
    if len(data) > RECORD_BYTES_MAX:
        raise LocalProtocolError(
            f"a control record of {len(data)} bytes, at most {RECORD_BYTES_MAX}"
        )
    return data


def fold(state: ControlState, key: bytes | None, value: bytes | None) -> ControlState:
    """Return the state after one record of the topic.

    Raises:
        ControlRecordError: The bytes are none of this package, or exceed a limit.
    """
    if key is None or len(key) > _KEY_BYTES_MAX:
        raise ControlRecordError(f"a key that no control record has: {(key or b'')[:40]!r}")
    if value is None:
        return _without(state, key)
    if len(value) > RECORD_BYTES_MAX:
        raise ControlRecordError(f"{len(value)} bytes, at most {RECORD_BYTES_MAX}")
    try:
        record = _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ControlRecordError(f"no control record: {error}") from None
    if key != key_of(record) or not _is_in_range(record):
        raise ControlRecordError(f"a control record under the key of another one: {key[:40]!r}")
    return state.with_record(record)


def _without(state: ControlState, key: bytes) -> ControlState:
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise ControlRecordError(f"a key that no control record has: {key[:40]!r}") from None
    return state.without_leave(name.removeprefix(_LEAVE)) if name.startswith(_LEAVE) else state


def _is_in_range(record: ControlRecord) -> bool:
    if isinstance(record, Released):
        return all(0 <= end <= _OFFSET_MAX for _, _, end in record.ends)
    return True

"""The records of a stream application's control topic: values, encoding and fold; pure.

Each record replaces the previous one about the same task or member, so the topic is compacted. The
group, not the log, decides ownership. The log records facts that the group cannot store: the end of
a changelog when its owner released the task, the id of a changelog, members asked to leave, failed
tasks.
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
"""Maximum size of a record in bytes."""
ERROR_TEXT_MAX = 1_000
"""Maximum number of characters kept of an error's text."""
_KEY_BYTES_MAX = 1_000
_TASK, _LEAVE, _CHANGELOG = "task/", "leave/", "changelog/"
_PROGRAM = b"program"
_OFFSET_MAX = 2**63 - 1


class TaskRecord(Struct, frozen=True, kw_only=True):
    """Base class of the records about a task.

    Attributes:
        task: The task.
        generation: The generation of the writer.
        member: Member id of the writer.
        at: The time in milliseconds since the epoch by the writer's clock.
    """

    task: Task
    generation: int
    member: str
    at: int


class Released(TaskRecord, frozen=True, kw_only=True, tag="released"):
    """The owner has released a task; all its work is in the changelogs and committed.

    Attributes:
        ends: The offset up to which each changelog must be replayed.
        at: When its last record was processed.
    """

    ends: tuple[tuple[str, int, int], ...]

    @property
    def changelog_ends(self) -> dict[TopicPartition, int]:
        """The changelog ends by partition."""
        return {TopicPartition(topic, number): end for topic, number, end in self.ends}


class Started(TaskRecord, frozen=True, kw_only=True, tag="started"):
    """The task has a new owner, which processes it.

    Attributes:
        unavailable_ms: Milliseconds without processing; None: not known.
        restored: Number of records replayed after the grant.
        url: The HTTP address where the writer answers queries; empty: none.
        after: Member id of the former owner, if it ended or was removed without a release.
    """

    unavailable_ms: int | None
    restored: int
    url: str = ""
    after: str = ""


class Failed(TaskRecord, frozen=True, kw_only=True, tag="failed"):
    """The task raised an exception at its owner, and has stopped there.

    Attributes:
        error: The error.
    """

    error: str


class Leave(Struct, frozen=True, kw_only=True, tag="leave"):
    """A member has been asked to leave once others have learned its tasks.

    Attributes:
        member: Its member id.
        at: When this was written, in milliseconds since the epoch.
    """

    member: str
    at: int


class ProgramNoted(Struct, frozen=True, kw_only=True, tag="program"):
    """The program that the members of the application run.

    Attributes:
        digest: Digest of the program.
        at: When this was written, in milliseconds since the epoch.
    """

    digest: str
    at: int


class ChangelogNoted(Struct, frozen=True, kw_only=True, tag="changelog"):
    """The id of a changelog; a recreated topic has a different id.

    Attributes:
        topic: Its name.
        topic_id: Its id (KIP-516).
        at: When this was written, in milliseconds since the epoch.
    """

    topic: str
    topic_id: str
    at: int


ControlRecord: TypeAlias = Released | Started | Failed | Leave | ProgramNoted | ChangelogNoted
AnyTaskRecord: TypeAlias = Released | Started | Failed

_DECODER = msgspec.json.Decoder(ControlRecord)


class ControlState(Struct, frozen=True):
    """The fold of the records.

    Attributes:
        tasks: The last record of each task.
        released: The last release of each task.
        leaves: The members asked to leave.
        program: The program of the application; None: not written yet.
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
            known = self.changelogs.get(record.topic, record.topic_id)  # the first record counts
            return replace(self, changelogs=self.changelogs.set(record.topic, known))
        if isinstance(record, Leave):
            return replace(self, leaves=self.leaves.set(record.member, record))
        state = replace(self, tasks=self.tasks.set(record.task, record))
        if isinstance(record, Released):
            return replace(state, released=state.released.set(record.task, record))
        return state

    def without_leave(self, member: str) -> ControlState:
        """Return the state after a member's tombstone."""
        kept = {name: each for name, each in self.leaves.items() if name != member}
        return replace(self, leaves=Map(kept))


def key_of(record: ControlRecord) -> bytes:
    """Return the key of a record; it replaces earlier records with this key."""
    if isinstance(record, Leave):
        return leave_key(record.member)
    if isinstance(record, ProgramNoted):
        return _PROGRAM
    if isinstance(record, ChangelogNoted):
        return f"{_CHANGELOG}{record.topic}".encode()
    return f"{_TASK}{record.task}/{type(record).__name__.lower()}".encode()


def leave_key(member: str) -> bytes:
    """Return the key of the record about a leaving member."""
    return (_LEAVE + member).encode()


def encode_record(record: ControlRecord) -> bytes:
    """Encode a record.

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
        ControlRecordError: The bytes are not a record of this package, or exceed a limit.
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
        raise ControlRecordError(f"not a control record: {error}") from None
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

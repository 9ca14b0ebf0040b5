"""The encoding of user data: a member's claim when it joins, and the leader's instructions.

It consists of a version byte, a flags byte, and a body, which is compressed if that makes it
smaller. Numbers are unsigned LEB128. Tasks are sorted and delta-encoded. Active tasks are left out
because the subscription lists their partitions. New fields are only added at the end, so that an
older reader understands the known part of a newer version.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter

from immutables import Map
from msgspec import Struct

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.group.subscription import NO_GENERATION
from kohort.streams.assignment.settings import TAG_KEY_MAX, TAG_VALUE_MAX, TAGS_MAX
from kohort.streams.assignment.tasks import Task

VERSION = 3
"""Version 1 had no workers; version 2 had no list of tasks that a member cannot learn."""
BODY_BYTES_MAX = 1_000_000
"""Maximum size of a decompressed body in bytes."""
TASKS_MAX = 100_000
"""Maximum number of tasks that a member may list."""
WORKERS_MAX = 10_000
"""Maximum number of workers that a member may have."""
TROUBLE_MAX = 300
"""Maximum length of an error in characters."""

_FIRST_VERSION, _WITH_WORKERS, _WITH_UNABLE = 1, 2, 3
_COMPRESSED = 1
_DRAFT = 1
_PARTIAL = 2
_HEADER_BYTES = 2
_NUMBER_MAX = 2**63 - 1
_ID_MAX = 2**31 - 1

Lags = Map[Task, int | None]
"""A member's lag with each task; None: unknown."""


class Claim(Struct, frozen=True, kw_only=True):
    """A member's claim when it joins, which is fixed until it has joined.

    Attributes:
        generation: Its last generation, or -1 (KIP-792).
        learning: Tasks that it learns.
        standbys: Tasks for which it has a standby.
        dormant: Tasks that it has on disk but does not follow.
        revoked: Tasks that it gave up for this rebalance, because another member learns them.
        leaving_ms: Milliseconds since it began to leave; None: it stays.
        client_tags: Where it runs (KIP-708).
        workers: Its number of workers; tasks are divided among the workers of all members.
        unable: Tasks that it failed to learn or follow since it joined the group.
        trouble: The last error of these tasks, for display.
    """

    generation: int = NO_GENERATION
    learning: Lags = Map()
    standbys: Lags = Map()
    dormant: Lags = Map()
    revoked: frozenset[Task] = frozenset()
    leaving_ms: int | None = None
    client_tags: Map[str, str] = Map()
    workers: int = 1
    unable: frozenset[Task] = frozenset()
    trouble: str = ""


class Instructions(Struct, frozen=True, kw_only=True):
    """The leader's instructions to a member, besides its partitions.

    Attributes:
        learning: Tasks to learn.
        standbys: Tasks to follow as a standby.
        being_learned: Its active tasks that another member learns.
        acceptable_recovery_lag: The lag in offsets within which it is ready. The leader's limit
            applies to all members: a member with a different limit would ask for rebalances that
            change nothing.
        is_partial: Whether it asks for a rebalance after each task that it has learned.
        is_draft: Whether it gives up tasks that others learn when it joins.
    """

    learning: frozenset[Task] = frozenset()
    standbys: frozenset[Task] = frozenset()
    being_learned: frozenset[Task] = frozenset()
    acceptable_recovery_lag: int = 0
    is_partial: bool = False
    is_draft: bool = False


def encode_claim(claim: Claim) -> bytes:
    """Encode a claim.

    Raises:
        LocalProtocolError: It exceeds a limit of the reader.
    """
    body = bytearray()
    _put(body, claim.generation + 1)
    _put(body, 0 if claim.leaving_ms is None else claim.leaving_ms + 1)
    _put_tags(body, claim.client_tags)
    _put_tasks(body, claim.revoked)
    for lags in (claim.learning, claim.standbys, claim.dormant):
        _put_tasks(body, lags)
        for task in sorted(lags):
            lag = lags[task]
            _put(body, 0 if lag is None else lag + 1)
    _put(body, claim.workers)
    _put_tasks(body, claim.unable)
    _put_text(body, claim.trouble[:TROUBLE_MAX])
    return _packed(body)


def decode_claim(data: bytes) -> Claim:
    """Decode a claim.

    Raises:
        RemoteProtocolError: The bytes are not a claim, or exceed a limit.
    """
    reader = _Reader(data)
    says_unable = reader.version >= _WITH_UNABLE
    claim = Claim(
        generation=reader.number(_ID_MAX + 1) - 1,
        leaving_ms=_optional(reader.number()),
        client_tags=reader.tags(),
        revoked=frozenset(reader.tasks()),
        learning=reader.lags(),
        standbys=reader.lags(),
        dormant=reader.lags(),
        workers=reader.number(WORKERS_MAX) if reader.version >= _WITH_WORKERS else 1,
        unable=frozenset(reader.tasks() if says_unable else ()),
        trouble=reader.text(TROUBLE_MAX) if says_unable else "",
    )
    reader.end()
    if not claim.workers:
        raise RemoteProtocolError("a member without workers in user data")
    return claim


def encode_instructions(instructions: Instructions) -> bytes:
    """Encode the leader's instructions; raises the errors of `encode_claim`."""
    body = bytearray()
    _put(body, _DRAFT * instructions.is_draft | _PARTIAL * instructions.is_partial)
    _put(body, instructions.acceptable_recovery_lag)
    for tasks in (instructions.learning, instructions.standbys, instructions.being_learned):
        _put_tasks(body, tasks)
    return _packed(body)


def decode_instructions(data: bytes) -> Instructions:
    """Decode the leader's instructions.

    Raises:
        RemoteProtocolError: The bytes are not instructions, or exceed a limit.
    """
    reader = _Reader(data)
    flags = reader.number(_DRAFT | _PARTIAL)
    instructions = Instructions(
        is_draft=bool(flags & _DRAFT),
        is_partial=bool(flags & _PARTIAL),
        acceptable_recovery_lag=reader.number(),
        learning=frozenset(reader.tasks()),
        standbys=frozenset(reader.tasks()),
        being_learned=frozenset(reader.tasks()),
    )
    reader.end()
    return instructions


# --------------------------------------------------------------------------------------- writing


def _put(body: bytearray, number: int) -> None:
    if not 0 <= number <= _NUMBER_MAX:
        raise LocalProtocolError(f"{number} does not fit into user data")
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _put_tasks(body: bytearray, tasks: Collection[Task]) -> None:
    if len(tasks) > TASKS_MAX:
        raise LocalProtocolError(f"{len(tasks)} tasks of one member, at most {TASKS_MAX}")
    parts = [(n, [p for _, p in each]) for n, each in groupby(sorted(tasks), itemgetter(0))]
    _put(body, len(parts))
    for (number, partitions), step in zip(parts, _steps(n for n, _ in parts), strict=True):
        if number > _ID_MAX or partitions[-1] > _ID_MAX:
            raise LocalProtocolError(f"task {number}_{partitions[-1]} does not fit into user data")
        _put(body, step)
        _put(body, len(partitions))
        for each in _steps(partitions):
            _put(body, each)


def _steps(ascending: Iterable[int]) -> Iterable[int]:
    """Return each number's difference from the smallest possible one at its position."""
    least = 0
    for number in ascending:
        yield number - least
        least = number + 1


def _put_tags(body: bytearray, tags: Mapping[str, str]) -> None:
    is_right = len(tags) <= TAGS_MAX and all(
        len(key) <= TAG_KEY_MAX and len(value) <= TAG_VALUE_MAX for key, value in tags.items()
    )
    if not is_right:
        raise LocalProtocolError(f"client tags exceed the limits of KIP-708: {dict(tags)}")
    _put(body, len(tags))
    for pair in sorted(tags.items()):
        for text in pair:
            _put_text(body, text)


def _put_text(body: bytearray, text: str) -> None:
    data = text.encode()
    _put(body, len(data))
    body += data


def _packed(body: bytearray) -> bytes:
    if len(body) > BODY_BYTES_MAX:
        raise LocalProtocolError(f"user data of {len(body)} bytes, at most {BODY_BYTES_MAX}")
    small = zlib.compress(body)
    if len(small) < len(body):
        return bytes((VERSION, _COMPRESSED)) + small
    return bytes((VERSION, 0)) + bytes(body)


# --------------------------------------------------------------------------------------- reading


def _optional(number: int) -> int | None:
    return number - 1 if number else None


class _Reader:
    """Reads a body, and checks every count against the remaining bytes."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER_BYTES or data[0] < _FIRST_VERSION or data[1] not in (0, _COMPRESSED):
            raise RemoteProtocolError(f"no user data of learner tasks: {data[:20]!r}")
        self.version = data[0]
        self.body = _inflated(data) if data[1] else data[_HEADER_BYTES:]
        if len(self.body) > BODY_BYTES_MAX:
            raise RemoteProtocolError(f"user data has more than {BODY_BYTES_MAX} bytes")
        self.at = 0

    def number(self, most: int = _NUMBER_MAX) -> int:
        """Read a number up to `most`."""
        value = shift = 0
        while self.at < len(self.body) and shift < 63:
            byte = self.body[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                if value > most:
                    raise RemoteProtocolError(f"{value} in user data, at most {most}")
                return value
            shift += 7
        raise RemoteProtocolError("user data ends within a number, or a number is too long")

    def count(self, most: int, least_bytes: int) -> int:
        """Read the number of items that follow, each at least `least_bytes` long."""
        return self.number(min(most, (len(self.body) - self.at) // least_bytes))

    def tasks(self) -> list[Task]:
        """Read tasks, in order."""
        found: list[Task] = []
        number = -1
        for _ in range(self.count(TASKS_MAX, 3)):
            number += 1 + self.number(_ID_MAX)
            partition = -1
            for _ in range(self.count(TASKS_MAX - len(found), 1)):
                partition += 1 + self.number(_ID_MAX)
                found.append(Task(number, partition))
            if max(number, partition) > _ID_MAX:
                raise RemoteProtocolError(f"task {number}_{partition} in user data")
        return found

    def lags(self) -> Lags:
        """Read tasks with a member's lag for each."""
        tasks = self.tasks()
        return Map({task: _optional(self.number()) for task in tasks})

    def tags(self) -> Map[str, str]:
        """Read client tags."""
        pairs = range(self.count(TAGS_MAX, 2))
        return Map({self.text(TAG_KEY_MAX): self.text(TAG_VALUE_MAX) for _ in pairs})

    def text(self, most: int) -> str:
        """Read a text of up to `most` characters."""
        size = self.count(4 * most, 1)
        data = self.body[self.at : self.at + size]
        self.at += size
        try:
            found = data.decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"a text in user data is not UTF-8: {data!r}") from None
        if len(found) > most:
            raise RemoteProtocolError(f"a text of {len(found)} characters, at most {most}")
        return found

    def end(self) -> None:
        """Check that nothing follows, unless the version is newer."""
        if self.at < len(self.body) and self.version <= VERSION:
            raise RemoteProtocolError(f"{len(self.body) - self.at} bytes too many in user data")


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        body = inflating.decompress(data[_HEADER_BYTES:], BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"user data cannot be decompressed: {error}") from None
    if len(body) <= BODY_BYTES_MAX and not (inflating.eof and not inflating.unused_data):
        raise RemoteProtocolError("compressed user data is truncated, or has bytes after its end")
    return body

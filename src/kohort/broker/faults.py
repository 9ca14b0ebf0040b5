"""Faults that an embedded broker injects on request, to test programs against them.

Each fault applies to some requests: to those of an API, of a client, about a topic or a group; from
the first or a later one on; and to one or several of them.
"""

from __future__ import annotations

import asyncio
import threading
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from kohort.broker.refusals import REFUSABLE, refused
from kohort.errors import ConfigError, ErrorCode
from kohort.values import replace
from kohort.wire import apis
from kohort.wire.codec.schema import Buffer, Message

Action: TypeAlias = Literal["error", "delay", "disconnect", "silence", "throttle", "truncate"]

ANY = "*"
"""Stands for every API."""

HARNESS = "kohort-harness"
"""Client id of `kohort.testing.KafkaHarness`: only faults that name it apply to its requests."""

_PAUSE = "throttle_time_ms"

_APIS = {place.rpartition(".")[2]: key for key, place in apis.KAFKA.items()}
# Fields with which requests name topics and groups; items of `groups` may have topics in turn.
_TOPICS = ("topic_data", "topics", "v3_and_below_topics")
_TOPIC_NAMES = ("topic_names", "subscribed_topic_names")
_GROUPS = ("groups_names", "group_ids", "coordinator_keys", "groups")

Answer: TypeAlias = "list[Buffer] | Awaitable[list[Buffer]] | None"


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault, and the requests it applies to.

    Attributes:
        action: "error" answers with an error instead of processing the request; "delay" processes
        it after a while; "disconnect" closes the connection instead of answering; "silence" keeps
        the connection open and never answers; "throttle" answers at once and asks the client for a
        pause, as a quota does (KIP-219); "truncate" sends the first half of the response and closes
        the connection.
        api: Name of the API in Kafka, for example "Produce", "OffsetCommit", "JoinGroup"; "*" for
        all but ApiVersions, and with "error" for all but FindCoordinator that can have one.
        error: For "error": the name of the error code, for example "NOT_COORDINATOR".
        delay_ms: For "delay", the delay; for "throttle", the requested pause; for others, a delay
        before the action.
        effect: For "disconnect" and "silence": whether the request is processed first.
        client_id: The client it applies to; empty for all but "kohort-harness", the id of a
        `KafkaHarness`.
        topic: The topic it applies to; empty for all.
        group: The group it applies to; empty for all.
        nth: The first of these requests that it applies to, counted from 1.
        times: Number of requests that it applies to; 0 for all from there on.
    """

    action: Action
    api: str = ANY
    error: str = ""
    delay_ms: int = 0
    effect: bool = False
    client_id: str = ""
    topic: str = ""
    group: str = ""
    nth: int = 1
    times: int = 1

    def check(self) -> None:
        """Check that the fault is valid.

        Raises:
            ConfigError: An attribute is invalid; names it.
        """
        _check_action(self.action)
        if self.api != ANY and self.api not in _APIS:
            raise ConfigError(f"fault: api={self.api!r} is not among {', '.join(sorted(_APIS))}")
        if self.nth < 1 or self.times < 0 or self.delay_ms < 0:
            raise ConfigError("fault: nth must be at least 1, times and delay_ms at least 0")
        if self.action in ("delay", "throttle") and not self.delay_ms:
            raise ConfigError(f"fault: a {self.action} needs delay_ms")
        if self.action == "throttle" and self.api != ANY and not _has_pauses(self.api):
            raise ConfigError(f"fault: responses of {self.api} cannot ask for a pause")
        if (self.action == "error") != bool(self.error):
            raise ConfigError('fault: action="error" and error="CODE" must be given together')
        if self.error:
            self._check_error()
        self._check_place("topic", self.topic, (*_TOPICS, *_TOPIC_NAMES))
        self._check_place("group", self.group, ("group_id", *_GROUPS))
        if self.effect and self.action not in ("disconnect", "silence"):
            raise ConfigError('fault: effect is only for "disconnect" and "silence"')

    def _check_place(self, what: str, name: str, fields: Iterable[str]) -> None:
        """Reject a topic or group for requests that do not name any."""
        if not name or self.api == ANY:
            return
        if not {*fields} & {*apis.request_class(_APIS[self.api]).__struct_fields__}:
            raise ConfigError(
                f"fault: it would never apply, as a request of {self.api} names no {what}:"
                f" leave out {what}={name!r}"
            )

    def _check_error(self) -> None:
        if self.error not in ErrorCode.__members__:
            raise ConfigError(f"fault: error={self.error!r} is not an error code of Kafka")
        if self.api not in (*REFUSABLE, ANY):
            raise ConfigError(f"fault: errors are possible for {', '.join(sorted(REFUSABLE))}")


class Injected:
    """A fault of a broker, with its counters.

    Attributes:
        fault: The fault.
        seen: Number of matching requests, regardless of `nth` and `times`.
        hits: Number of requests it was applied to.
        removed: Done when the fault is removed from the broker.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = self.hits = 0
        self.removed: Future[None] = Future()

    @property
    def pause_ms(self) -> int:
        """The pause that responses ask for."""
        return self.fault.delay_ms if self.fault.action == "throttle" else 0

    @property
    def is_over(self) -> bool:
        """Whether it applies to no further requests."""
        return bool(self.fault.times) and self.hits >= self.fault.times

    def takes(self) -> bool:
        """Count a matching request; return whether the fault applies to it."""
        self.seen += 1
        if self.seen < self.fault.nth or self.is_over:
            return False
        self.hits += 1
        return True


class DisconnectError(Exception):
    """A fault closes the connection."""


class LastAnswer(list[Buffer]):
    """A response after which the connection is closed."""


Serve: TypeAlias = Callable[[], Answer]
Encode: TypeAlias = Callable[[Message], list[Buffer]]


class Faults:
    """The faults of a broker; may be changed from any thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._injected: tuple[Injected, ...] = ()

    def __iter__(self) -> Iterator[Injected]:
        return iter(self._injected)

    def add(self, fault: Fault) -> Injected:
        """Add a fault; if several match a request, the first one added applies.

        Raises:
            ConfigError: The fault is invalid.
        """
        fault.check()
        injected = Injected(fault)
        with self._lock:
            self._injected = (*self._injected, injected)
        return injected

    def remove(self, injected: Injected) -> None:
        """Remove a fault; connections that it keeps silent are closed."""
        with self._lock:
            self._injected = tuple(each for each in self._injected if each is not injected)
        if not injected.removed.done():
            injected.removed.set_result(None)

    def clear(self) -> None:
        """Remove all faults."""
        for each in self:
            self.remove(each)

    @contextmanager
    def injected(self, fault: Fault) -> Iterator[Injected]:
        """Inject a fault within a `with` block."""
        made = self.add(fault)
        try:
            yield made
        finally:
            self.remove(made)

    def load(self, path: Path) -> None:
        """Add the faults of a TOML file, one table `[[fault]]` each.

        Raises:
            ConfigError: The file cannot be read, or a fault is invalid.
        """
        for fault in read(path):
            self.add(fault)

    def of(
        self, api: str, client_id: str, topics: Iterable[str], groups: Iterable[str]
    ) -> Injected | None:
        """Return the fault that applies to a request, if any, and count it."""
        for each in self._injected:
            fault = each.fault
            if not _is_for(fault, api):
                continue
            if fault.client_id != client_id and (fault.client_id or client_id == HARNESS):
                continue
            if (fault.topic and fault.topic not in topics) or (
                fault.group and fault.group not in groups
            ):
                continue
            if each.takes():
                return each
        return None


def read(path: Path) -> list[Fault]:
    """Read faults from a TOML file.

    Raises:
        ConfigError: The file cannot be read or is malformed; says where.
    """
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"faults of {path}: {error}") from error
    if tables.keys() - {"fault"}:
        others = ", ".join(sorted(tables.keys() - {"fault"}))
        raise ConfigError(f"faults of {path}: tables must be named [[fault]], not {others}")
    given = tables.get("fault", [])
    if not isinstance(given, list):
        raise ConfigError(f"faults of {path}: each fault must be a table [[fault]]")
    return [_read_one(path, number, table) for number, table in enumerate(given, 1)]


def _read_one(path: Path, number: int, table: object) -> Fault:
    try:
        if not isinstance(table, dict):
            raise ConfigError("it must be a table")
        made = fault_of(table)
        made.check()
    except ConfigError as error:
        why = str(error).removeprefix("fault: ")
        raise ConfigError(f"faults of {path}: fault {number}: {why}") from error
    return made


def fault_of(given: Mapping[str, object]) -> Fault:
    """Create a fault from its attributes.

    Raises:
        ConfigError: An attribute is unknown or of the wrong type.
    """
    action = given.get("action")
    if isinstance(action, str):
        _check_action(action)
    try:
        return msgspec.convert(given, Fault)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        where = f"{place.rstrip('`')}: " if place else ""
        raise ConfigError(f"fault: {where}{text}") from error


def _check_action(action: str) -> None:
    if action not in get_args(Action):
        known = ", ".join(map(repr, get_args(Action)))
        raise ConfigError(f"fault: action={action!r} is not among {known}")


def _is_for(fault: Fault, api: str) -> bool:
    if fault.api != ANY:
        return fault.api == api
    if fault.error:
        return api in REFUSABLE and api != "FindCoordinator"
    return api != "ApiVersions"


def _has_pauses(api: str) -> bool:
    return _PAUSE in apis.response_class(_APIS[api]).__struct_fields__


def throttled(answer: Message, pause_ms: int) -> Message:
    """Return a response that asks for a pause, if it has a field for that."""
    has_field = pause_ms and _PAUSE in answer.__struct_fields__
    return replace(answer, **{_PAUSE: pause_ms}) if has_field else answer


async def suffer(
    injected: Injected, request: Message, version: int, serve: Serve, encode: Encode
) -> list[Buffer]:
    """Answer a request that a fault applies to.

    Args:
        injected: The fault; a silent connection is closed when it is removed.
        request: The request.
        version: Version of the request.
        serve: Processes the request, and returns the response.
        encode: Encodes a response.

    Raises:
        DisconnectError: There is no response.
    """
    fault = injected.fault
    await asyncio.sleep(0 if injected.pause_ms else fault.delay_ms / 1000)
    if fault.action == "error" and getattr(request, "acks", 1) == 0:
        raise DisconnectError  # the only way to notify a producer that expects no responses
    if fault.action == "error":
        return encode(refused(request, version, ErrorCode[fault.error]))
    answer: list[Buffer] = []
    if fault.effect or fault.action in ("delay", "throttle", "truncate"):
        served = serve()
        answer = (await served if isinstance(served, Awaitable) else served) or []
    if fault.action in ("delay", "throttle"):
        return answer
    if fault.action == "silence":
        await asyncio.shield(asyncio.wrap_future(injected.removed))
    if fault.action == "truncate":
        whole = b"".join(answer)
        return LastAnswer([whole[: len(whole) // 2]])
    raise DisconnectError


def topics_of(request: Message, name_of: Callable[[object], str]) -> list[str]:
    """Return the topics that a request names.

    Args:
        request: Any request.
        name_of: Returns the name of the topic with an id, or an empty string.
    """
    names: list[str] = []
    for part in (request, *_parts(request, "groups")):
        for each in chain.from_iterable(_parts(part, field) for field in _TOPICS):
            name = getattr(each, "name", None) or getattr(each, "topic", None)
            names.append(name or name_of(getattr(each, "topic_id", None)))
    for field in _TOPIC_NAMES:
        names.extend(str(each) for each in _parts(request, field))
    return names


def _parts(value: object, field: str) -> Iterable[object]:
    return getattr(value, field, None) or ()


def groups_of(request: Message) -> list[str]:
    """Return the groups that a request names."""
    names: list[str] = [getattr(request, "group_id", "")]
    for field in _GROUPS:
        names.extend(str(getattr(each, "group_id", each)) for each in _parts(request, field))
    if getattr(request, "key_type", 1) == 0:
        names.append(getattr(request, "key", ""))
    return names

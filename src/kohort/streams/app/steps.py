"""The steps of a program, and how each one processes a record.

The DSL creates each step as a value. `bind` connects it to the stores of one task and returns its
two halves:

* `call(key, value, time)` looks up the state and calls the application's function. If the
    function returns an awaitable, the runner of the step awaits it.
* `finish(key, value, time, result)` does the rest and returns the items for the next steps.

So each step is written only once for both plain functions and coroutines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from kohort.streams.app.serdes import Decoded, Serde
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import BuildError
from kohort.streams.stores.store import Store

Anything: TypeAlias = Any
"""A key or value of the application."""

AnySerde: TypeAlias = Serde[Any]
Function: TypeAlias = Callable[..., Any]

Item: TypeAlias = tuple[Anything, Anything, int]
"""Key, value and timestamp, passed from one step to the next."""

Items: TypeAlias = Sequence[Item]

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249
# The length that "-repartition" leaves for the names of application and step.
_LONGEST = 100


def check_name(what: str, name: str) -> str:
    """Return a name after checking that it can be part of a topic name.

    Args:
        what: What is being named, for error messages.
        name: The name.

    Raises:
        BuildError: It contains characters that Kafka does not allow in topic names, or is too long.
    """
    if not _LEGAL.fullmatch(name) or name in (".", "..") or len(name) > _LONGEST:
        raise BuildError(
            f"{what} cannot have the name {name!r}: 1 to {_LONGEST} of a-z, A-Z, 0-9, '.', '_'"
            " and '-'"
        )
    return name


def check_topic(name: str) -> str:
    """Return a topic name after checking it.

    Raises:
        BuildError: Kafka does not allow the name.
    """
    if not _LEGAL.fullmatch(name) or name in (".", "..") or len(name) > _LONGEST_TOPIC:
        raise BuildError(
            f"no topic can have the name {name!r}: 1 to {_LONGEST_TOPIC} of a-z, A-Z, 0-9, '.',"
            " '_' and '-'"
        )
    return name


class Bound(NamedTuple):
    """A step connected to a task; `call` is None if the step calls no function."""

    call: Callable[[Anything, Anything, int], Anything] | None
    finish: Callable[[Anything, Anything, int, Anything], Items]


class Run(Protocol):
    """The interface of a task for its steps."""

    def store(self, name: str) -> Store:
        """Return an open store."""
        ...

    def emit(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Add a record to the outputs."""
        ...

    def drop(self, step: str, reason: str) -> None:
        """Count and log that a step skips the current record."""
        ...


class _Dropped:
    """The result of `call` for a record that is dropped here."""


DROPPED = _Dropped()
NULL_KEY = "it has no key"
NULL_VALUE = "it has no value"
LATE = "its window is closed"


class Step(Struct, frozen=True, kw_only=True):
    """A step of a program.

    Attributes:
        number: Its index in the program.
        name: Its name, unique in the program.
        parents: The numbers of the steps before it.
    """

    number: int
    name: str
    parents: tuple[int, ...] = ()

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The numbers of the steps that must be in the same sub-topology."""
        return self.parents

    def bind(self, run: Run) -> Bound:
        """Connect the step to a task."""
        raise NotImplementedError

    def describe(self) -> list[object]:
        """Return everything that must be equal in all processes, for the digest."""
        about: list[object] = [type(self).__name__]
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, Serde):
                about.append([field, value.name])
            elif not callable(value):
                about.append([field, value])
        return about


class Source(Step, frozen=True, kw_only=True):
    """Reads a topic.

    Attributes:
        is_repartition: Whether the program writes the topic itself.
    """

    topic: str
    key: AnySerde
    value: AnySerde
    is_repartition: bool = False
    partitions: int | None = None

    def bind(self, _run: Run) -> Bound:
        """Deserialize the record."""
        read_key, read_value = self.key.deserialize, self.value.deserialize

        def finish(key: bytes | None, value: bytes | None, time: int, _: object) -> list[Item]:
            return [
                (
                    None if key is None else read_key(key),
                    None if value is None else read_value(value),
                    time,
                )
            ]

        return Bound(None, finish)


class Sink(Step, frozen=True, kw_only=True):
    """Writes a topic.

    Attributes:
        needs_key: Whether records without a key are skipped.
    """

    topic: str
    key: AnySerde
    value: AnySerde
    needs_key: bool = False

    def bind(self, run: Run) -> Bound:
        """Serialize the record."""
        write_key, write_value = self.key.serialize, self.value.serialize
        topic, emit, needs_key, name = self.topic, run.emit, self.needs_key, self.name

        def finish(key: Anything, value: Anything, time: int, _: object) -> tuple[()]:
            if key is None and needs_key:
                run.drop(name, NULL_KEY)
            else:
                emit(
                    topic,
                    None if key is None else write_key(key),
                    None if value is None else write_value(value),
                    time,
                )
            return ()

        return Bound(None, finish)


class Calling(Step, frozen=True, kw_only=True):
    """Base class of steps that call a function with key and value."""

    function: Function

    def bind(self, _run: Run) -> Bound:
        """Call the function."""
        function = self.function

        def call(key: Anything, value: Anything, _: int) -> Anything:
            return function(key, value)

        return Bound(call, self.finish)

    def finish(self, key: Anything, value: Anything, time: int, result: Anything) -> Items:
        """Return the items for the next steps, given the result of the function."""
        raise NotImplementedError


class Map(Calling, frozen=True, kw_only=True):
    """Replaces the value."""

    def finish(self, key: Anything, _value: Anything, time: int, result: Anything) -> Items:
        """Pass on the result."""
        return ((key, result, time),)


class Filter(Calling, frozen=True, kw_only=True):
    """Keeps records for which the function returns a true value."""

    def finish(self, key: Anything, value: Anything, time: int, result: Anything) -> Items:
        """Pass on the record or drop it."""
        return ((key, value, time),) if result else ()


class FlatMap(Calling, frozen=True, kw_only=True):
    """Replaces a value by any number of values."""

    def finish(self, key: Anything, _value: Anything, time: int, result: Anything) -> Items:
        """Pass on each result."""
        return [(key, each, time) for each in result]


class KeyBy(Calling, frozen=True, kw_only=True):
    """Replaces the key."""

    def finish(self, _key: Anything, value: Anything, time: int, result: Anything) -> Items:
        """Pass on the value with the result as its key."""
        return ((result, value, time),)


class ForEach(Calling, frozen=True, kw_only=True):
    """Calls a function for its side effects."""

    def finish(self, _key: Anything, _value: Anything, _time: int, _result: Anything) -> Items:
        """Pass on nothing."""
        return ()


class View:
    """A store as seen by steps, with the application's keys and values."""

    __slots__ = ("_read", "_write", "key_bytes", "store")

    def __init__(self, store: Store, key: AnySerde, value: AnySerde) -> None:
        self.store = store
        self.key_bytes = key.serialize
        self._read = value.deserialize
        self._write = value.serialize

    def get(self, key: bytes) -> Anything:
        """Return a value, or None if there is none."""
        found = self.store.get(key)
        return None if found is None else self._read(found)

    def set(self, key: bytes, value: Anything) -> None:
        """Set a value; None deletes it."""
        if value is None:
            self.store.delete(key)
        else:
            self.store.put(key, self._write(value))


class StoreRef(Struct, frozen=True):
    """A store of another step: its name, the step's number, and serdes of keys and values."""

    name: str
    number: int
    key: AnySerde
    value: AnySerde

    def view(self, run: Run) -> View:
        """Return a view of the store for steps."""
        return View(run.store(self.name), self.key, self.value)


class Storing(Step, frozen=True, kw_only=True):
    """Base class of steps that own a store, which has the step's name."""

    key: AnySerde
    value: AnySerde

    @property
    def reference(self) -> StoreRef:
        """A reference to the store for other steps."""
        return StoreRef(self.name, self.number, self.key, self.value)

    def get(self, store: Store, key: Anything) -> Anything:
        """Return the value of a key in its store, or None if it has none."""
        found = store.get(self.key.serialize(key))
        return None if found is None else self.value.deserialize(found)

    def partition_key(self, key: Anything) -> bytes:
        """Return the bytes that determine a key's partition."""
        return self.key.serialize(key)

    def items(self, store: Store) -> Iterator[tuple[Anything, Anything]]:
        """Return all keys of its store with their values, in byte order of the keys."""
        read_key, read_value = self.key.deserialize, self.value.deserialize
        return ((read_key(key), read_value(value)) for key, value in store.items())


class ToTable(Storing, frozen=True, kw_only=True):
    """Keeps the last value of each key; None deletes it."""

    def bind(self, run: Run) -> Bound:
        """Set or delete the value."""
        view, name = self.reference.view(run), self.name

        def finish(key: Anything, value: Anything, time: int, _: object) -> Items:
            if key is None:
                run.drop(name, NULL_KEY)
                return ()
            view.set(view.key_bytes(key), value)
            return ((key, value, time),)

        return Bound(None, finish)


class Aggregate(Storing, frozen=True, kw_only=True):
    """Folds the values of each key."""

    initial: Callable[[], Anything]
    function: Function

    def bind(self, run: Run) -> Bound:
        """Read the state, call the function and write its result."""
        view, name = self.reference.view(run), self.name
        initial, function = self.initial, self.function

        def call(key: Anything, value: Anything, _: int) -> Anything:
            if key is None or value is None:
                run.drop(name, NULL_KEY if key is None else NULL_VALUE)
                return DROPPED
            state = view.get(view.key_bytes(key))
            return function(initial() if state is None else state, value)

        def finish(key: Anything, _: Anything, time: int, state: Anything) -> Items:
            if state is DROPPED:
                return ()
            view.set(view.key_bytes(key), state)
            return ((key, state, time),)

        return Bound(call, finish)


class JoinTable(Step, frozen=True, kw_only=True):
    """Joins each record of a stream with its key's current value in a table."""

    table: StoreRef
    function: Function
    is_left: bool

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The preceding step and the table's step."""
        return (*self.parents, self.table.number)

    def bind(self, run: Run) -> Bound:
        """Look the key up and call the function."""
        view, name, function = self.table.view(run), self.name, self.function
        is_left = self.is_left

        def call(key: Anything, value: Anything, _: int) -> Anything:
            if key is None or value is None:
                run.drop(name, NULL_KEY if key is None else NULL_VALUE)
                return DROPPED
            other = view.get(view.key_bytes(key))
            return DROPPED if other is None and not is_left else function(value, other)

        def finish(key: Anything, _: Anything, time: int, result: Anything) -> Items:
            return () if result is DROPPED else ((key, result, time),)

        return Bound(call, finish)

    def describe(self) -> list[object]:
        """Return everything that must be equal: the table, identified by its store."""
        return ["JoinTable", self.number, self.name, self.parents, self.table.name, self.is_left]


class JoinTables(Storing, frozen=True, kw_only=True):
    """Joins two tables into a third, which is updated when either of the two changes."""

    left: StoreRef
    right: StoreRef
    function: Function
    is_left: bool

    def bind(self, run: Run) -> Bound:
        """Look up both values, call the function and store the result."""
        view, left, right = self.reference.view(run), self.left.view(run), self.right.view(run)
        function, is_left = self.function, self.is_left

        def call(key: Anything, _value: Anything, _: int) -> Anything:
            name = view.key_bytes(key)
            mine = left.get(name)
            other = None if mine is None else right.get(name)
            if mine is None or (other is None and not is_left):
                return None
            return function(mine, other)

        def finish(key: Anything, _: Anything, time: int, result: Anything) -> Items:
            name = view.key_bytes(key)
            if result is None and view.store.get(name) is None:
                return ()
            view.set(name, result)
            return ((key, result, time),)

        return Bound(call, finish)

    def describe(self) -> list[object]:
        """Return everything that must be equal: the tables, identified by their stores."""
        tables = [self.left.name, self.right.name, self.key.name, self.value.name]
        return ["JoinTables", self.number, self.name, self.parents, *tables, self.is_left]


class Found(NamedTuple):
    """The answer to a query.

    Attributes:
        value: The value; None: the store has none for the key.
        task: The task to which the key belongs.
        is_owner: Whether this instance processes the task.
        lag: How many offsets it is behind the changelog; None: unknown.
    """

    value: Decoded
    task: Task
    is_owner: bool
    lag: int | None

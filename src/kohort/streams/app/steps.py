"""The steps of a program, and how each one processes a record.

A step is a value that the DSL makes. `bind` connects it with the stores of one task and returns its
two halves:

* `call(key, value, time)` looks up the state and calls the application's function. If the
    function returns an awaitable, the runner of the step awaits it.
* `finish(key, value, time, result)` does the rest and returns the items for the next steps.

So each step is written once, for plain functions and for coroutines.
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
"""A key or a value of the application."""

AnySerde: TypeAlias = Serde[Any]
Function: TypeAlias = Callable[..., Any]

Item: TypeAlias = tuple[Anything, Anything, int]
"""Key, value and timestamp, on the way from one step to the next."""

Items: TypeAlias = Sequence[Item]

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249
# The length that "-repartition" leaves for the names of an application and a step.
_LONGEST = 100


def check_name(what: str, name: str) -> str:
    """Return a name that can be part of a topic's name.

    Args:
        what: What the name is for, for people.
        name: The name.

    Raises:
        BuildError: It has other characters than Kafka's topics have, or is too long.
    """
    if not _LEGAL.fullmatch(name) or name in (".", "..") or len(name) > _LONGEST:
        raise BuildError(
            f"{what} cannot have the name {name!r}: 1 to {_LONGEST} of a-z, A-Z, 0-9, '.', '_'"
            " and '-'"
        )
    return name


def check_topic(name: str) -> str:
    """Return the name of a topic.

    Raises:
        BuildError: Kafka does not allow it for a topic.
    """
    if not _LEGAL.fullmatch(name) or name in (".", "..") or len(name) > _LONGEST_TOPIC:
        raise BuildError(
            f"no topic can have the name {name!r}: 1 to {_LONGEST_TOPIC} of a-z, A-Z, 0-9, '.',"
            " '_' and '-'"
        )
    return name


class Bound(NamedTuple):
    """A step that is connected with a task; `call` is None where no function is called."""

    call: Callable[[Anything, Anything, int], Anything] | None
    finish: Callable[[Anything, Anything, int, Anything], Items]


class Run(Protocol):
    """The part of a task that steps use."""

    def store(self, name: str) -> Store:
        """Return an open store."""
        ...

    def emit(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Add a record to the outputs."""
        ...

    def drop(self, step: str, reason: str) -> None:
        """Count and log that a step skips the present record."""
        ...


class _Dropped:
    """The result of `call` for a record that ends here."""


DROPPED = _Dropped()
NULL_KEY = "it has no key"
NULL_VALUE = "it has no value"
LATE = "its window is closed"


class Step(Struct, frozen=True, kw_only=True):
    """A step of a program.

    Attributes:
        number: Its place in the program.
        name: Its name, which is unique in the program.
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
        """Connect it with a task."""
        raise NotImplementedError

    def describe(self) -> list[object]:
        """Return everything that must be the same in every process, for the digest."""
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
    """Base of steps that call a function with key and value."""

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
        """Pass the result on."""
        return ((key, result, time),)


class Filter(Calling, frozen=True, kw_only=True):
    """Keeps records for which the function returns a true value."""

    def finish(self, key: Anything, value: Anything, time: int, result: Anything) -> Items:
        """Pass the record on, or end here."""
        return ((key, value, time),) if result else ()


class FlatMap(Calling, frozen=True, kw_only=True):
    """Replaces one value by any number of them."""

    def finish(self, key: Anything, _value: Anything, time: int, result: Anything) -> Items:
        """Pass each of the results on."""
        return [(key, each, time) for each in result]


class KeyBy(Calling, frozen=True, kw_only=True):
    """Replaces the key."""

    def finish(self, _key: Anything, value: Anything, time: int, result: Anything) -> Items:
        """Pass the value on with the result as key."""
        return ((result, value, time),)


class ForEach(Calling, frozen=True, kw_only=True):
    """Calls a function for its effects."""

    def finish(self, _key: Anything, _value: Anything, _time: int, _result: Anything) -> Items:
        """End here."""
        return ()


class View:
    """A store as steps see it: keys and values of the application."""

    __slots__ = ("_read", "_write", "key_bytes", "store")

    def __init__(self, store: Store, key: AnySerde, value: AnySerde) -> None:
        self.store = store
        self.key_bytes = key.serialize
        self._read = value.deserialize
        self._write = value.serialize

    def get(self, key: bytes) -> Anything:
        """Return a value; None if there is none."""
        found = self.store.get(key)
        return None if found is None else self._read(found)

    def set(self, key: bytes, value: Anything) -> None:
        """Put a value; None deletes."""
        if value is None:
            self.store.delete(key)
        else:
            self.store.put(key, self._write(value))


class StoreRef(Struct, frozen=True):
    """A store that another step owns: its name, the step's number, serdes of keys and values."""

    name: str
    number: int
    key: AnySerde
    value: AnySerde

    def view(self, run: Run) -> View:
        """Return a view of it for steps."""
        return View(run.store(self.name), self.key, self.value)


class Storing(Step, frozen=True, kw_only=True):
    """Base of steps that own a store, which has the name of the step."""

    key: AnySerde
    value: AnySerde

    @property
    def reference(self) -> StoreRef:
        """A reference by which other steps use the store."""
        return StoreRef(self.name, self.number, self.key, self.value)

    def get(self, store: Store, key: Anything) -> Anything:
        """Return the value of a key in its store, None without one."""
        found = store.get(self.key.serialize(key))
        return None if found is None else self.value.deserialize(found)

    def partition_key(self, key: Anything) -> bytes:
        """Return the bytes that decide the partition of a key."""
        return self.key.serialize(key)

    def items(self, store: Store) -> Iterator[tuple[Anything, Anything]]:
        """Return all keys of its store with their values, in the order of the keys' bytes."""
        read_key, read_value = self.key.deserialize, self.value.deserialize
        return ((read_key(key), read_value(value)) for key, value in store.items())


class ToTable(Storing, frozen=True, kw_only=True):
    """Keeps the last value of each key; None deletes it."""

    def bind(self, run: Run) -> Bound:
        """Put, or delete."""
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
        """Read the state, call the function, write its result."""
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
    """Joins each record of a stream with the present value of its key in a table."""

    table: StoreRef
    function: Function
    is_left: bool

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The step before it, and the one with the table."""
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
        """Return what must be the same: the table by its store."""
        return ["JoinTable", self.number, self.name, self.parents, self.table.name, self.is_left]


class JoinTables(Storing, frozen=True, kw_only=True):
    """Joins two tables into a third one; it runs whenever one of the two changes."""

    left: StoreRef
    right: StoreRef
    function: Function
    is_left: bool

    def bind(self, run: Run) -> Bound:
        """Look both up, call the function, keep the result."""
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
        """Return what must be the same: the tables by their stores."""
        tables = [self.left.name, self.right.name, self.key.name, self.value.name]
        return ["JoinTables", self.number, self.name, self.parents, *tables, self.is_left]


class Found(NamedTuple):
    """The answer to a query.

    Attributes:
        value: The value; None: the store has none for the key.
        task: The task that has the key.
        is_owner: Whether this instance processes it.
        lag: How many offsets of the changelog it is behind; None: not known.
    """

    value: Decoded
    task: Task
    is_owner: bool
    lag: int | None

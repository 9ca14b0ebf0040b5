"""Argument checks of public calls, at the point of entry.

A wrong argument raises in the caller's own frame, with its name, its value and the expected type or
range. Deeper inside, it would fail on the client's loop, in a task that all callers share.

Every check returns the value in the form that the client uses: whole numbers as `int`, partitions
as `TopicPartition`, iterables as tuples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import index
from reprlib import Repr
from typing import SupportsIndex, TypeVar, cast

from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Buffer

T = TypeVar("T")
F = TypeVar("F")

Headers = tuple[tuple[str, Buffer | None], ...]

LONGEST_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
# Kafka's older encoding of strings has 16 bits for the length.
_LONGEST_TEXT = 2**15 - 1
_MOST_PARTITION = 2**31 - 1
_MOST_OFFSET = 2**63 - 1
# 31 years: longer timeouts, including infinity, overflow the operating system's clocks.
LONGEST_MS = 10**12

_repr = Repr()
_repr.maxstring = _repr.maxother = 80


def shown(value: object) -> str:
    """Return a short text of any value with its type, for error messages."""
    return "None" if value is None else f"{_repr.repr(value)} ({type(value).__name__})"


def as_int(value: object) -> int | None:
    """Return a whole number as an `int`; None for anything else, such as a bool or an array."""
    try:
        return None if isinstance(value, bool) else index(cast("SupportsIndex", value))
    except TypeError:
        return None


def whole(value: object, argument: str, least: int, most: int) -> int:
    """Check a whole number; NumPy integers pass, `bool` and `float` do not.

    Args:
        value: The given value.
        argument: The caller's name for it.
        least: The smallest value allowed.
        most: The largest value allowed.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is out of range.
    """
    number = as_int(value)
    if number is None:
        raise TypeError(f"{argument} must be a whole number, not {shown(value)}")
    if not least <= number <= most:
        wanted = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{argument} is {_repr.repr(number)}; it must be {wanted}")
    return number


def flag(value: object, argument: str) -> bool:
    """Check a boolean.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(value, bool):
        return value
    raise TypeError(f"{argument} must be True or False, not {shown(value)}")


def text(value: object, argument: str, *, may_be_empty: bool = False) -> str:
    """Check a string for Kafka's protocol: encodable, and at most 32,767 bytes long.

    Raises:
        TypeError: It is not a `str`.
        ValueError: It is empty, too long, or has a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {shown(value)}")
    if not value and not may_be_empty:
        raise ValueError(f"{argument} is empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{argument} {_repr.repr(value)} cannot be encoded as UTF-8") from None
    if size > _LONGEST_TEXT:
        raise ValueError(f"{argument} has {size} bytes; Kafka carries at most {_LONGEST_TEXT}")
    return value


def texts(value: object, argument: str) -> tuple[str, ...]:
    """Check names, such as group ids; a single string is not a sequence of names.

    Raises:
        TypeError: It is a single string or not iterable, or one of them is not a `str`.
        ValueError: One of them is empty, too long or cannot be encoded.
    """
    return tuple(text(each, f"{argument}[{at}]") for at, each in enumerate(_many(value, argument)))


def topic(value: object, argument: str = "topic", kind: str = "a topic's name") -> str:
    """Check the name of a topic, by Kafka's own rule.

    Args:
        value: The given value.
        argument: The caller's name for it.
        kind: The expected kind of name, for the error.

    Raises:
        TypeError: It is not a `str`.
        ValueError: It is empty, "." or "..", longer than 249 characters, or contains a character
            other than ASCII letters, digits, dot, underscore and hyphen.
    """
    name = text(value, argument)
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{argument} has {len(name)} characters; Kafka allows {LONGEST_NAME}")
    if not _is_name(name):
        raise ValueError(
            f"{argument} {_repr.repr(name)} is not {kind}: ASCII letters, digits, '.',"
            " '_' and '-' are allowed, '.' and '..' are not"
        )
    return name


@lru_cache(1_000)
def _is_name(name: str) -> bool:
    is_short = len(name) <= LONGEST_NAME
    return is_short and name not in (".", "..") and bool(_LEGAL_NAME.fullmatch(name))


def topics(value: object, argument: str = "topics") -> tuple[str, ...]:
    """Check names of topics; a single string is not a sequence of names.

    Raises:
        TypeError: It is a single string or not iterable, or one of them is not a `str`.
        ValueError: One of them is not a valid topic name.
    """
    return tuple(topic(each, f"{argument}[{at}]") for at, each in enumerate(_many(value, argument)))


def partition_number(value: object, argument: str = "partition") -> int:
    """Check a partition number.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is negative or beyond 32 bits.
    """
    return whole(value, argument, 0, _MOST_PARTITION)


def partition(value: object, argument: str = "partition") -> TopicPartition:
    """Check a partition; any tuple of topic name and number is accepted, such as kafka-python's.

    Raises:
        TypeError: It is not such a tuple.
        ValueError: Kafka does not allow the name or the number.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{argument} must be a TopicPartition, not {shown(value)}")
    name = topic(value[0], f"{argument}.topic")
    return TopicPartition(name, partition_number(value[1], f"{argument}.partition"))


def partitions(value: object, argument: str = "partitions") -> tuple[TopicPartition, ...]:
    """Check partitions; a single partition is not a sequence of partitions.

    Raises:
        TypeError: It is a single partition or not iterable, or one of them is not a partition.
        ValueError: Kafka does not allow one of them.
    """
    if isinstance(value, TopicPartition):
        raise TypeError(f"{argument} must be several partitions, not one: write [{value!r}]")
    many = tuple(_many(value, argument))
    if all(map(_is_partition, many)):  # Spark sources pass thousands, several times a second
        return cast("tuple[TopicPartition, ...]", many)
    return tuple(partition(each, f"{argument}[{at}]") for at, each in enumerate(many))


def _is_partition(value: object) -> bool:
    """Whether `partition` would return the value unchanged."""
    if type(value) is not TopicPartition:
        return False
    name, number = value
    return (
        type(name) is str
        and _is_name(name)
        and type(number) is int
        and 0 <= number <= _MOST_PARTITION
    )


def offset(value: object, argument: str = "offset") -> int:
    """Check the offset of a record.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is negative.
    """
    return whole(value, argument, 0, _MOST_OFFSET)


def offsets(value: object, argument: str = "offsets") -> dict[TopicPartition, OffsetAndMetadata]:
    """Check offsets to commit: by partition, with or without metadata.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: An offset is negative, or Kafka does not allow a partition.
    """
    return _by_partition(value, argument, _stored)


def _stored(value: object, argument: str) -> OffsetAndMetadata:
    if not isinstance(value, OffsetAndMetadata):
        if as_int(value) is None:
            raise TypeError(
                f"{argument} must be an OffsetAndMetadata or a whole number, not {shown(value)}"
            )
        return OffsetAndMetadata(offset(value, argument))
    return OffsetAndMetadata(
        offset(value.offset, f"{argument}.offset"),
        text(value.metadata, f"{argument}.metadata", may_be_empty=True),
        whole(value.leader_epoch, f"{argument}.leader_epoch", -1, _MOST_PARTITION),
    )


def timestamps(value: object, argument: str = "timestamps") -> dict[TopicPartition, int]:
    """Check times by partition, in milliseconds since the epoch.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: A time is negative, or Kafka does not allow a partition.
    """
    return _by_partition(value, argument, timestamp_ms)


def targets(value: object, argument: str = "targets") -> dict[TopicPartition, int]:
    """Check times by partition, or Kafka's numbers for special positions (-1 to -6).

    Raises:
        TypeError: It is not such a mapping.
        ValueError: A number is below -6, or Kafka does not allow a partition.
    """
    return _by_partition(value, argument, lambda each, where: whole(each, where, -6, _MOST_OFFSET))


def starts(value: object, argument: str) -> dict[TopicPartition, int]:
    """Check the first offsets to keep, by partition; -1 is the end.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: A number is below -1, or Kafka does not allow a partition.
    """
    return _by_partition(value, argument, lambda each, where: whole(each, where, -1, _MOST_OFFSET))


def counts(value: object, argument: str) -> dict[str, int]:
    """Check numbers of partitions, by topic.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: A number is below 1.
    """
    return {
        text(name, f"a key of {argument}"): whole(count, f"{argument}[{name!r}]", 1, 2**31 - 1)
        for name, count in mapping(value, argument).items()
    }


def timestamp_ms(value: object, argument: str = "timestamp_ms") -> int:
    """Check a point in time, in milliseconds since the epoch.

    Raises:
        TypeError: It is not a whole number, for example seconds from `time.time()`.
        ValueError: It is negative.
    """
    return whole(value, argument, 0, _MOST_OFFSET)


def timeout_ms(value: object, argument: str = "timeout_ms") -> float:
    """Check a timeout in milliseconds; infinity is allowed, and means 31 years.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or NaN.
    """
    return _duration(value, argument, LONGEST_MS)


def timeout_ms_or_none(value: object, argument: str = "timeout_ms") -> float | None:
    """Check a timeout in milliseconds; None means the value from the settings.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or NaN.
    """
    return None if value is None else timeout_ms(value, argument)


def timeout_s(value: object, argument: str = "timeout") -> float:
    """Check a timeout in seconds; infinity is allowed, and means 31 years.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or NaN.
    """
    return _duration(value, argument, LONGEST_MS / 1000)


def timeout_s_or_none(value: object, argument: str = "timeout") -> float | None:
    """Check a timeout in seconds; None means no limit.

    Raises:
        TypeError: It is not a number.
        ValueError: It is negative or NaN.
    """
    return None if value is None else timeout_s(value, argument)


def _duration(value: object, argument: str, most: float) -> float:
    if isinstance(value, float):
        number = value
    elif (given := as_int(value)) is None:
        raise TypeError(f"{argument} must be a number, not {shown(value)}")
    else:
        number = min(given, most)
    if number < 0 or math.isnan(number):
        raise ValueError(f"{argument} is {_repr.repr(value)}; it cannot be negative or NaN")
    return min(number, most)


def headers(value: object, argument: str = "headers") -> Headers:
    """Check a record's headers; None means no headers, as in kafka-python.

    Raises:
        TypeError: They are not an iterable of pairs of a `str`, and bytes or None.
        ValueError: A name cannot be encoded.
    """
    if value is None or value == ():
        return ()
    if isinstance(value, Mapping):
        raise TypeError(
            f"{argument} must be pairs of name and value, not a {type(value).__name__}: names may"
            " repeat; write list(headers.items())"
        )
    return tuple(
        _header(each, f"{argument}[{at}]") for at, each in enumerate(_many(value, argument))
    )


def _header(value: object, argument: str) -> tuple[str, Buffer | None]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{argument} must be a pair of name and value, not {shown(value)}")
    name, content = value
    if content is not None and not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"{argument}: the value must be bytes or None, not {shown(content)}")
    if content is not None:
        content = buffer(content, argument)
    return text(name, f"{argument}: the name", may_be_empty=True), content


def buffer(value: Buffer, argument: str) -> Buffer:
    """Check that the length of a buffer is its number of bytes.

    Raises:
        ValueError: It is a view of numbers, has several dimensions, or has gaps.
    """
    if isinstance(value, memoryview) and not (
        value.contiguous and value.ndim == 1 and value.itemsize == 1
    ):
        raise ValueError(f"{argument} is a memoryview of something other than contiguous bytes")
    return value


def mapping(value: object, argument: str) -> Mapping[object, object]:
    """Check that a value is a mapping.

    Raises:
        TypeError: It is none.
    """
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    raise TypeError(f"{argument} must be a mapping, not {shown(value)}")


def instance(value: object, argument: str, kind: type[T]) -> T:
    """Check the type of a value.

    Raises:
        TypeError: It is not.
    """
    if isinstance(value, kind):
        return value
    raise TypeError(f"{argument} must be a {kind.__name__}, not {shown(value)}")


def function_or_none(value: F | None, argument: str) -> F | None:
    """Check an optional callback.

    Raises:
        TypeError: It cannot be called.
    """
    if value is None or callable(value):
        return value
    raise TypeError(f"{argument} must be a function or None, not {shown(value)}")


def listener_or_none(value: F | None, argument: str) -> F | None:
    """Check an optional rebalance listener.

    Raises:
        TypeError: It is a class, or lacks a method.
    """
    methods = ("on_partitions_revoked", "on_partitions_assigned")
    if value is None:
        return None
    if isinstance(value, type) or not all(callable(getattr(value, each, None)) for each in methods):
        raise TypeError(f"{argument} must have {' and '.join(methods)}, not be {shown(value)}")
    return value


def pattern_or_none(value: object, argument: str, *, is_ours: bool) -> str | re.Pattern[str] | None:
    """Check an optional regular expression.

    Args:
        value: The given value, a string or a compiled expression.
        argument: The caller's name for it.
        is_ours: Whether a string is compiled here rather than by the broker.

    Raises:
        TypeError: It is neither.
        ValueError: It is not a regular expression.
    """
    if value is None or (isinstance(value, re.Pattern) and isinstance(value.pattern, str)):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str or a pattern of str, not {shown(value)}")
    text(value, argument)
    try:
        return re.compile(value) if is_ours else value
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{argument} {_repr.repr(value)}: {error}") from None


def records_or_none(value: object, argument: str = "max_records") -> int | None:
    """Check a maximum number of records.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is below 1.
    """
    return None if value is None else whole(value, argument, 1, _MOST_OFFSET)


def instances(value: object, argument: str, kind: type[T]) -> tuple[T, ...]:
    """Check the type of several values.

    Raises:
        TypeError: It is not iterable, or one of them has another type.
    """
    return tuple(
        instance(each, f"{argument}[{at}]", kind) for at, each in enumerate(_many(value, argument))
    )


def _by_partition(
    value: object, argument: str, check: Callable[[object, str], T]
) -> dict[TopicPartition, T]:
    return {
        partition(key, f"a key of {argument}"): check(each, f"{argument}[{_place(key)}]")
        for key, each in mapping(value, argument).items()
    }


def _place(key: object) -> str:
    return _repr.repr("-".join(map(str, key)) if isinstance(key, tuple) else key)


def _many(value: object, argument: str) -> Iterable[object]:
    """Return an iterable of values: strings and mappings are rejected."""
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(f"{argument} must be several, for example in a list, not {shown(value)}")
    if not isinstance(value, Iterable):
        raise TypeError(f"{argument} must be a list or another iterable, not {shown(value)}")
    return value

"""The values of options: numbers, times, topics and offsets, written as for Spark's own source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias, TypeVar

from kohort.errors import ConfigError
from kohort.types import TopicPartition

EARLIEST = -2
LATEST = -1

# Where to start or end: a keyword for all partitions, or an offset (or -2, -1) for some.
# `committed` is the group's offset.
Offsets: TypeAlias = Literal["earliest", "latest", "committed"] | Mapping[TopicPartition, int]
# Milliseconds since 1970, or -1 (latest) and -2 (earliest), as in Spark's own source.
Timestamps: TypeAlias = Mapping[TopicPartition, int]

# Spark's units of time, in milliseconds.
_UNITS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_KEYWORDS: Mapping[str, tuple[Literal["earliest", "latest", "committed"], ...]] = {
    "startingOffsets": ("earliest", "latest", "committed"),
    "endingOffsets": ("latest",),
}
_OFFSETS_LIKE = '{"topic":{"0":23,"1":-1}}'
_TIMES_LIKE = '{"topic":{"0":1700000000000}}'
_ASSIGN_LIKE = '{"topic":[0,1]}'

T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)


class OptionError(ConfigError):
    """An option is missing, unknown or malformed."""


class Values:
    """The given options, looked up by name; case does not matter.

    Args:
        raw: Names and texts.
    """

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._texts = {key.lower(): value for key, value in raw.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str | None:
        """Return the text without surrounding blanks; None if it is missing or empty."""
        return self._texts.get(name.lower(), "").strip() or None

    def number(self, name: str, least: int = 1) -> int | None:
        """Return a whole number.

        Raises:
            OptionError: The value is not a whole number, or below `least`.
        """
        text = self._given(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            kind = "a positive number" if least == 1 else f"a number from {least} up"
            raise OptionError(f"{name} must be {kind}, not {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean.

        Raises:
            OptionError: The value is neither `true` nor `false`.
        """
        text = self._given(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def choice(self, name: str, choices: Collection[Choice]) -> Choice | None:
        """Return one of `choices`, spelled as there.

        Raises:
            OptionError: The value is not one of them.
        """
        text = self._given(name)
        if text is None:
            return None
        found = next((each for each in choices if each.lower() == text.lower()), None)
        if found is None:
            raise OptionError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
        return found

    def duration_ms(self, name: str, default: int) -> int:
        """Return a duration such as `15m`, in milliseconds, which is also the default unit.

        Raises:
            OptionError: The value is not a duration.
        """
        text = self._given(name)
        if text is None:
            return default
        found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
        if found is None or (found[2] or "ms") not in _UNITS:
            units = ", ".join(_UNITS)
            raise OptionError(f"{name} must be a time like 15m (units: {units}), not {text!r}")
        return int(int(found[1]) * _UNITS[found[2] or "ms"])

    def names(self, name: str) -> tuple[str, ...]:
        """Return the comma-separated names."""
        text = self._texts.get(name.lower(), "")
        return tuple(each.strip() for each in text.split(",") if each.strip())

    def offsets(self, name: str) -> Offsets | None:
        """Return a keyword or offsets by partition.

        Raises:
            OptionError: It is neither.
        """
        text = self._given(name)
        if text is None:
            return None
        keywords = _KEYWORDS[name]
        for keyword in keywords:
            if text.lower() == keyword:
                return keyword
        kinds = f"{', '.join(keywords)} or JSON like {_OFFSETS_LIKE}"
        least = EARLIEST if name == "startingOffsets" else LATEST
        found = self._json(name, text, kinds, _by_partition)
        for partition, offset in found.items():
            if offset < least:
                raise OptionError(f"{name}: {offset} is not an offset of {_shown(partition)}")
        return found

    def timestamp(self, name: str) -> int | None:
        """Return a time in milliseconds since 1970, or `LATEST` or `EARLIEST`.

        Raises:
            OptionError: It is neither.
        """
        text = self._given(name)
        if text is None:
            return None
        if text in (str(LATEST), str(EARLIEST)) or (text.isascii() and text.isdecimal()):
            return int(text)
        raise OptionError(
            f"{name} must be milliseconds since 1970, -1 (latest) or -2 (earliest), not {text!r}"
        )

    def timestamps(self, name: str) -> Timestamps | None:
        """Return timestamps by partition.

        Raises:
            OptionError: They are malformed.
        """
        text = self._given(name)
        if text is None:
            return None
        found = self._json(name, text, f"JSON like {_TIMES_LIKE} (milliseconds)", _by_partition)
        for partition, timestamp in found.items():
            if timestamp < EARLIEST:
                raise OptionError(f"{name}: {timestamp} is not a timestamp of {_shown(partition)}")
        return found

    def partitions(self, name: str) -> tuple[TopicPartition, ...]:
        """Return partitions by topic.

        Raises:
            OptionError: They are malformed, or there are none.
        """
        text = self._given(name) or ""
        found = self._json(name, text, f"JSON like {_ASSIGN_LIKE}", _partition_list)
        if not found:
            raise OptionError(f"{name} names no partition; it must be JSON like {_ASSIGN_LIKE}")
        return found

    def _given(self, name: str) -> str | None:
        text = self._texts.get(name.lower())
        return None if text is None else text.strip()

    @staticmethod
    def _json(name: str, text: str, kinds: str, parse: Callable[[object], T]) -> T:
        try:
            return parse(json.loads(text))
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise OptionError(f"{name} must be {kinds}, not {text!r}") from error


def _by_partition(found: object) -> dict[TopicPartition, int]:
    if not isinstance(found, dict):
        raise TypeError("not by topic")
    parsed: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        for partition, number in partitions.items():
            if type(number) is not int or not (partition.isascii() and partition.isdecimal()):
                raise ValueError(f"{topic}-{partition}: {number}")
            parsed[TopicPartition(topic, int(partition))] = number
    return parsed


def _partition_list(found: object) -> tuple[TopicPartition, ...]:
    if not isinstance(found, dict):
        raise TypeError("not by topic")
    parsed: set[TopicPartition] = set()
    for topic, partitions in found.items():
        for partition in partitions:
            if type(partition) is not int or partition < 0:
                raise ValueError(f"{topic}: {partition}")
            parsed.add(TopicPartition(topic, partition))
    return tuple(sorted(parsed))


def _shown(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"

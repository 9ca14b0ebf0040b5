"""Names of applications, steps and stores: each becomes a part of a topic's name and of a path."""

from __future__ import annotations

import re

from kohort.streams.errors import BuildError

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249
# What is left of a topic's name for an application and a step, beside "-repartition".
_LONGEST = 100


def check_name(what: str, name: str) -> str:
    """Return a name that can be part of a topic's name.

    Args:
        what: What it is the name of, for people.
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
        BuildError: No topic of Kafka can have it.
    """
    if not _LEGAL.fullmatch(name) or name in (".", "..") or len(name) > _LONGEST_TOPIC:
        raise BuildError(
            f"no topic can have the name {name!r}: 1 to {_LONGEST_TOPIC} of a-z, A-Z, 0-9, '.',"
            " '_' and '-'"
        )
    return name

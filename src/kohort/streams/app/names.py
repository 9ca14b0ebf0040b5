"""Names of applications, steps and stores, which are parts of topic names and paths."""

from __future__ import annotations

import re

from kohort.streams.errors import BuildError

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

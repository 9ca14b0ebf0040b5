"""A member's assignors as its machine sees them, read once since they are application code."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kohort.errors import ConfigError
from kohort.group.assignors.interface import Assignor

_LONGEST_NAME = 32_767
_HIGHEST_VERSION = 32_767
_OURS = "kohort.group.assignors."


class Offer(Struct, frozen=True):
    """One assignor as the member's machine sees it.

    Attributes:
        name: Its name.
        version: Version of its user data.
        own: The assignor itself if this package defines it, so that the machine may call it.
        is_asked: Whether a job has to ask it for user data when the member joins.
    """

    name: str
    version: int
    own: Assignor | None
    is_asked: bool


def offered(assignors: Iterable[Assignor]) -> tuple[Offer, ...]:
    """Return the properties of assignors without running them.

    Raises:
        ConfigError: Two have one name, or a name or version cannot be sent.
    """
    offers = tuple(_offer(each) for each in assignors)
    if len({each.name for each in offers}) != len(offers):
        raise ConfigError("assignors of one member need different names")
    return offers


def _offer(assignor: Assignor) -> Offer:
    name: object = assignor.name
    version: object = assignor.version
    shown = type(assignor).__name__
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME:
        raise ConfigError(f"the name of assignor {shown} must be a str and not empty: {name!r:.80}")
    if not isinstance(version, int) or not 0 <= version <= _HIGHEST_VERSION:
        raise ConfigError(f"the version of assignor {name} must be an int from 0 to 32767")
    kind = type(assignor)
    is_own = kind.__module__.startswith(_OURS)
    is_quiet = kind.subscription_user_data is Assignor.subscription_user_data
    return Offer(name, version, assignor if is_own else None, not (is_own or is_quiet))


def own_user_data(offers: Iterable[Offer], topics: frozenset[str]) -> dict[str, bytes]:
    """Return the user data of this package's own assignors, by their names."""
    said = {each.name: each.own.subscription_user_data(topics) for each in offers if each.own}
    return {name: data for name, data in said.items() if data is not None}

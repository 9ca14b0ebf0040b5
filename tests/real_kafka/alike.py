"""Ask two brokers the same, and show their answers without what is each broker's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.wire.codec.schema import ZERO_UUID, Message, Request, Struct, fields_of
from tests.broker.peer import Peer

Asked = tuple[Request[Any], int]

# Addresses, times and ids that a broker makes up itself.
_ITS_OWN = frozenset({"cluster_id", "host", "log_dir", "port", "producer_id", "throttle_time_ms"})
_VOLUME = frozenset({"total_bytes", "usable_bytes"})


def answers(bootstrap: str, requests: Iterable[Asked]) -> list[Any]:
    """What a broker answers; None where it closes the connection.

    Each request has a connection of its own, so that one that is refused does not end the others.
    """
    return [_answer(bootstrap, request, version) for request, version in requests]


def _answer(bootstrap: str, request: Request[Any], version: int) -> Any:
    with Peer(bootstrap) as peer:
        try:
            return shown(peer.ask(request, version), version)
        except ConnectionError:
            return None


def shown(value: object, version: int) -> Any:
    """An answer as dictionaries and lists; the order of lists means nothing in these APIs.

    Of messages for people only whether there is one beside an error is compared, of ids made by a
    broker whether there is one.
    """
    if isinstance(value, Struct):
        specs = (spec for spec in fields_of(type(value), version) if spec.present)
        return {
            spec.name: _shown_field(spec.name, value, version)
            for spec in specs
            if spec.name not in _ITS_OWN
        }
    if isinstance(value, tuple):
        return sorted((shown(each, version) for each in value), key=repr)
    return value


def _shown_field(name: str, owner: Struct, version: int) -> Any:
    value = getattr(owner, name)
    if name == "error_message":
        return bool(value)
    if name == "topic_id":
        return value != ZERO_UUID
    if name in _VOLUME:
        return value > 0
    return shown(value, version)


def differences(
    ours: str, theirs: str, requests: Iterable[Asked]
) -> list[tuple[Message, int, Any, Any]]:
    """The requests that two brokers answer differently, with both answers."""
    asked = list(requests)
    both = zip(asked, answers(ours, asked), answers(theirs, asked), strict=True)
    return [(*request, one, other) for request, one, other in both if one != other]

"""Enforces ACLs: answers the denied part of a request with errors and handles the rest.

Kafka checks rights per resource: in a request for several topics, each topic that the client may
not use gets an error, and the others are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohort.broker.authorization.denied import denied, denied_parts
from kohort.broker.authorization.rights_needed import RULES, Items, Rule
from kohort.broker.authorization.rights_shown import shown
from kohort.broker.context import Answer, BrokerContext, Caller, Handler
from kohort.broker.handlers.groups import then
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.values import replace
from kohort.wire.codec.schema import Message


def handle_permitted(
    handler: Handler, broker: BrokerContext, request: Message, caller: Caller
) -> Answer:
    """Handle the permitted part of a request, and answer the rest with errors.

    Raises:
        RemoteProtocolError: Something is denied, and the request expects no response.
    """
    if caller.rights.acls is None:
        return handler(broker, request, caller)
    answer = _permitted_part(handler, broker, request, caller)
    return answer and then(answer, lambda done: shown(request, done, caller.rights))


def _permitted_part(
    handler: Handler, broker: BrokerContext, request: Message, caller: Caller
) -> Answer:
    rule = RULES.get(type(request), Rule())
    code = None if rule.whole is None else rule.whole(broker, request, caller.rights)
    if code is not None:
        _check_answered(request)
        return denied(request, caller.version, code)
    for items in rule.items:
        if found := getattr(request, items.field):
            return _split(handler, broker, request, caller, items, found)
    return handler(broker, request, caller)


def _split(
    handler: Handler,
    broker: BrokerContext,
    request: Message,
    caller: Caller,
    items: Items,
    found: Sequence[object],
) -> Answer:
    """Handle a request without its denied items, and add the errors of these to the response."""
    codes = [items.need(broker, request, caller.rights, each) for each in found]
    if not any(codes):
        return handler(broker, request, caller)
    _check_answered(request)
    refused = _refusals(request, caller.version, items, found, codes)
    refusals = tuple(items.shown(broker, caller.rights, each) for each in refused)
    allowed = tuple(each for each, code in zip(found, codes, strict=True) if code is None)
    if not allowed and not items.is_always:
        return _nothing_else(request, caller.version, items, refusals)
    rest = replace(request, **{items.field: allowed})
    if not allowed:  # an empty list, which in version 0 would mean all
        caller = replace(caller, version=max(caller.version, 1))
    answer = handler(broker, rest, caller)
    assert answer is not None  # requests without a response were checked above
    return then(answer, lambda done: _with(done, items, refusals))


def _refusals(
    request: Message,
    version: int,
    items: Items,
    found: Sequence[object],
    codes: Sequence[ErrorCode | None],
) -> Iterator[object]:
    for code in dict.fromkeys(code for code in codes if code is not None):
        refused = tuple(each for each, its in zip(found, codes, strict=True) if its == code)
        part = replace(request, **{items.field: refused})
        yield from denied_parts(part, version, code, items.results)


def _nothing_else(
    request: Message, version: int, items: Items, refusals: tuple[object, ...]
) -> Message:
    answer = denied(request, version, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    whole = {"error_code": ErrorCode.NONE, items.results: refusals}
    fields = answer.__struct_fields__
    return replace(answer, **{name: value for name, value in whole.items() if name in fields})


def _with(answer: Message, items: Items, refusals: tuple[object, ...]) -> Message:
    return replace(answer, **{items.results: (*getattr(answer, items.results), *refusals)})


def _check_answered(request: Message) -> None:
    if getattr(request, "acks", 1) == 0:
        raise RemoteProtocolError("ACLs deny a Produce request with acks=0, which has no response")

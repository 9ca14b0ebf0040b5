"""SCRAM credentials of users: description and changes (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.net.credentials import ITERATIONS, Credentials, Key, ScramCredential
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.wire.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Problem = tuple[ErrorCode, str | None]
Change = ScramCredentialDeletion | ScramCredentialUpsertion

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in _MECHANISMS.items()}
_MAX_ITERATIONS = 16_384


def describe_user_scram_credentials(
    broker: BrokerContext, request: DescribeUserScramCredentialsRequest, _caller: Caller
) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms of users, with their iterations."""
    known = broker.credentials.described()
    asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())
    results = (_described(name, times, known.get(name, {})) for name, times in asked.items())
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=tuple(results))


def _described(
    name: str, times: int, mechanisms: dict[str, int]
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"{name!r} is named {times} times"
    elif not mechanisms:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"{name!r} has no SCRAM credential"
    infos = () if code else mechanisms.items()
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=code,
        error_message=clipped(message),
        credential_infos=tuple(
            CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=iterations)
            for mechanism, iterations in infos
        ),
    )


def alter_user_scram_credentials(
    broker: BrokerContext, request: AlterUserScramCredentialsRequest, _caller: Caller
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of users; each user may be named once."""
    problems: dict[str, Problem] = {}
    good: dict[str, Change] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        if change.name in problems:
            continue
        problem: Problem | None = _problem(change, broker.credentials)
        if change.name in good:
            del good[change.name]
            problem = ErrorCode.DUPLICATE_RESOURCE, "a request can change each user only once"
        if problem is None:
            good[change.name] = change
        else:
            problems[change.name] = problem
    try:
        broker.credentials.change(dict(map(_changed, good.values())))
    except KafkaError as error:
        problems |= dict.fromkeys(good, (ErrorCode.KAFKA_STORAGE_ERROR, error.message))
    names = [change.name for change in changes]
    return AlterUserScramCredentialsResponse(results=tuple(_results(names, problems)))


def _results(
    names: list[str], problems: dict[str, Problem]
) -> Iterator[AlterUserScramCredentialsResult]:
    for name in dict.fromkeys(names):
        code, message = problems.get(name, (ErrorCode.NONE, None))
        yield AlterUserScramCredentialsResult(
            user=name, error_code=code, error_message=clipped(message)
        )


def _problem(change: Change, credentials: Credentials) -> Problem | None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    mechanism = _MECHANISMS.get(change.mechanism)
    if not change.name:
        return unacceptable, "the user name must not be empty"
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {change.mechanism}"
    if isinstance(change, ScramCredentialDeletion):
        if credentials.has((change.name, mechanism)):
            return None
        return ErrorCode.RESOURCE_NOT_FOUND, f"{change.name!r} has no {mechanism} credential"
    if not ITERATIONS <= change.iterations <= _MAX_ITERATIONS:
        allowed = f"{ITERATIONS} to {_MAX_ITERATIONS} are allowed"
        return unacceptable, f"{change.iterations} iterations: {allowed}"
    if not change.salted_password:
        return ErrorCode.UNKNOWN_SERVER_ERROR, None  # as in Apache Kafka, which fails here
    return None


def _changed(change: Change) -> tuple[Key, ScramCredential | None]:
    mechanism = _MECHANISMS[change.mechanism]
    key = change.name, mechanism
    if isinstance(change, ScramCredentialDeletion):
        return key, None
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    return key, ScramCredential.of(mechanism, salted, salt, change.iterations)

"""Requests that set and describe SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.wire.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.real_kafka.alike import Asked


def scram(topic: str) -> Iterator[Asked]:
    """Yield requests for credentials, sound ones and mistakes, with their versions."""

    def described(*names: str) -> Asked:
        users = tuple(UserName(name=name) for name in names)
        return DescribeUserScramCredentialsRequest(users=users), 0

    def altered(*changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> Asked:
        request = AlterUserScramCredentialsRequest(
            deletions=tuple(c for c in changes if isinstance(c, ScramCredentialDeletion)),
            upsertions=tuple(c for c in changes if isinstance(c, ScramCredentialUpsertion)),
        )
        return request, 0

    def gone(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(name=name, mechanism=mechanism)

    def there(
        name: str, mechanism: int = 1, iterations: int = 4_096, salted: bytes = b"p" * 32
    ) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"salt of it",
            salted_password=salted,
        )

    for names in ((topic, "y"), ("x", "x", "z"), ("",)):
        yield described(*names)
    yield DescribeUserScramCredentialsRequest(users=()), 0
    yield altered()
    yield altered(gone("a"))
    yield altered(there("a"))
    yield altered(there("a", 2, 8_192, b"p" * 64))
    yield altered(there("b", iterations=16_384))
    yield described("a", "b", "c")
    for wrong in (
        (there("c", iterations=4_095),),
        (there("c", iterations=16_385),),
        (there("c", mechanism=0),),
        (there("c", mechanism=3),),
        (there("c", salted=b""),),
        (there("", mechanism=7),),
        (gone("", mechanism=7),),
        (gone("b", mechanism=9),),
        (gone("b", mechanism=2),),
        (gone("a"), there("a")),
        (gone("a"), there("a", 2)),
        (there("c"), there("c", 2, 1)),
        (there("c", 2, 1), there("c")),
        (gone("a"), gone("a", 2)),
        (gone("c"), gone("c", 2)),
        (there("c", 7), there("c", 7)),
        (gone("c", 9), there("d", 9), there("", 9), there("e")),
    ):
        yield altered(*wrong)
        yield described("a", "b", "c", "d", "e")
    yield altered(gone("a"), gone("b"), there("f"))
    yield DescribeUserScramCredentialsRequest(users=None), 0

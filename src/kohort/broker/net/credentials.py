"""Credentials of the broker's users: passwords, and what SCRAM stores of them.

All comparisons take constant time, and an unknown user causes the same computation as a known one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from kohort.broker.log.directory import DataDirectoryError
from kohort.broker.log.files import replace_file
from kohort.broker.log.storage import Storage

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 4_096

Key = tuple[str, str]
"""User and mechanism."""


class ScramCredential(Struct, frozen=True, repr_omit_defaults=True):
    """What a server stores of a password (RFC 5802), which cannot be recovered from it.

    Attributes:
        salt: The salt.
        iterations: Number of hash iterations.
        stored_key: Verifies the client's proof.
        server_key: Signs the server's answer, which proves that it knows the password.
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(
        cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Derive the stored credential from a salted password."""
        algorithm = SCRAM_HASHES[mechanism]
        client = hmac.digest(salted_password, b"Client Key", algorithm)
        server = hmac.digest(salted_password, b"Server Key", algorithm)
        return cls(salt, iterations, hashlib.new(algorithm, client).digest(), server)

    def __repr__(self) -> str:
        """Show nothing that helps to guess the password."""
        return f"ScramCredential(iterations={self.iterations})"


class _Row(Struct, frozen=True):
    """An entry of the file; None as the credential disables the one derived from `users`."""

    user: str
    mechanism: str
    credential: ScramCredential | None


class Credentials:
    """The users of one broker.

    For SCRAM, a credential set by a client (KIP-554) replaces the one derived from the password in
    `users`; PLAIN uses only `users`, as in Apache Kafka.

    Args:
        users: Names and passwords.
        mechanisms: The SCRAM mechanisms of these users.
        path: File with the credentials set by clients; created with the first one.
        storage: Reports errors of the operating system.

    Raises:
        DataDirectoryError: The file is damaged or cannot be read.
    """

    def __init__(
        self, users: Mapping[str, str], mechanisms: Iterable[str], path: Path, storage: Storage
    ) -> None:
        self._path, self._storage = path, storage
        self._secret = os.urandom(32)
        self._passwords = {user: self._digest(password) for user, password in users.items()}
        self._given = {
            (user, mechanism): self._salted(user, password, mechanism)
            for mechanism in mechanisms
            if mechanism in SCRAM_HASHES
            for user, password in users.items()
        }
        self._set = _read(path)

    def check(self, user: str, password: str) -> bool:
        """Whether the password is correct."""
        known = self._passwords.get(user)
        expected = self._secret if known is None else known
        return hmac.compare_digest(self._digest(password), expected) and known is not None

    def scram(self, user: str, mechanism: str) -> tuple[ScramCredential, bool]:
        """Return a credential, and whether a client can prove that it has the password.

        An unknown user always gets the same credential, which matches no password.
        """
        key = user, mechanism
        none = ScramCredential.of(mechanism, self._seed(key), self._salt(key), ITERATIONS)
        found = self._set.get(key, self._given.get(key))
        return (none, False) if found is None else (found, True)

    def described(self) -> dict[str, dict[str, int]]:
        """Return each user's mechanisms and their iterations."""
        found: dict[str, dict[str, int]] = {}
        for (user, mechanism), credential in sorted({**self._given, **self._set}.items()):
            if credential is not None:
                found.setdefault(user, {})[mechanism] = credential.iterations
        return found

    def has(self, key: Key) -> bool:
        """Whether a user can use a mechanism."""
        return self._set.get(key, self._given.get(key)) is not None

    def change(self, changes: Mapping[Key, ScramCredential | None]) -> None:
        """Set credentials, and remove those that are None.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and nothing has changed.
        """
        if not changes:
            return
        both = {**self._set, **changes}
        kept = {key: value for key, value in both.items() if value or key in self._given}
        rows = [_Row(*key, credential) for key, credential in sorted(kept.items())]
        with self._storage.writing(self._path):
            replace_file(self._path, msgspec.json.encode(rows), mode=0o600)
        self._set = kept

    def _salted(self, user: str, password: str, mechanism: str) -> ScramCredential:
        salt = self._salt((user, mechanism))
        algorithm = SCRAM_HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)
        return ScramCredential.of(mechanism, salted, salt, ITERATIONS)

    def _salt(self, key: Key) -> bytes:
        return hmac.digest(self._secret, "\0".join(("salt", *key)).encode(), "sha256")[:16]

    def _seed(self, key: Key) -> bytes:
        return hmac.digest(self._secret, "\0".join(("seed", *key)).encode(), "sha256")

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(), "sha256")


def _read(path: Path) -> dict[Key, ScramCredential | None]:
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[_Row])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataDirectoryError(
            f"{path}, the file of SCRAM credentials set by clients, is damaged ({error}); restore "
            "it from a backup, or remove it and set them again"
        ) from error
    return {(row.user, row.mechanism): row.credential for row in rows}

"""The server side of the SASL mechanisms PLAIN, SCRAM and OAUTHBEARER."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from kohort.broker.net.credentials import SCRAM_HASHES, Credentials

_NONCE_BYTES = 24
_OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
# Grammar of SCRAM messages as in Apache Kafka, which also rejects the "y," of RFC 5802.
_NAME = "(?:[^=,\\0]|=2C|=3D)+"
_MORE = "(?P<extensions>(?:,[A-Za-z]+=[^,\\0]+)*)"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_FIRST = re.compile(
    f"n,(?:a=(?P<authorized>{_NAME}))?,"
    rf"(?P<bare>(?:m=[^,\0]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE}){_MORE})"
)
_LAST = re.compile(
    f"(?P<without>c=[A-Za-z0-9+/=]*,r=(?P<nonce>{_PRINTABLE})){_MORE},p=(?P<proof>[A-Za-z0-9+/=]*)"
)


class RefusedError(Exception):
    """A login is refused; the message is sent to the client."""


class Plain:
    """PLAIN (RFC 4616): the password itself."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.claimed = ""
        self.user: str | None = None

    def answer(self, data: bytes) -> bytes:
        """Check the client's only message.

        Raises:
            RefusedError: The password is wrong.
        """
        parts = data.split(b"\0")
        if len(parts) != 3:
            raise RefusedError("Invalid SASL/PLAIN response: expected 3 tokens")
        try:
            authorized, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise RefusedError("Invalid SASL/PLAIN response: not UTF-8") from None
        self.claimed = user
        if not self._credentials.check(user, password):
            raise RefusedError("Authentication failed: Invalid username or password")
        if authorized not in ("", user):
            raise RefusedError(_OTHER_USER)
        self.user = user
        return b""


class Scram:
    """SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password."""

    def __init__(self, credentials: Credentials, mechanism: str) -> None:
        self._credentials = credentials
        self._mechanism, self._algorithm = mechanism, SCRAM_HASHES[mechanism]
        self._steps = self._exchange()
        next(self._steps)
        self.claimed = ""
        self.user: str | None = None

    def answer(self, data: bytes) -> bytes:
        """Process the client's next message.

        Raises:
            RefusedError: The proof is wrong, or the message does not fit this exchange.
        """
        try:
            return self._steps.send(data.decode())
        except (StopIteration, UnicodeDecodeError, binascii.Error):
            raise self._wrong() from None

    def _wrong(self) -> RefusedError:
        return RefusedError(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )

    def _exchange(self) -> Generator[bytes, str, None]:
        found = _FIRST.fullmatch((yield b""))
        if found is None:
            raise self._wrong()
        bare, name, nonce = found["bare"], found["name"], found["nonce"]
        self.claimed = user = name.replace("=2C", ",").replace("=3D", "=")
        if found["authorized"] not in (None, user):
            raise RefusedError(_OTHER_USER)
        if "tokenauth=true" in found["extensions"].lower().split(","):
            raise self._wrong()  # delegation tokens are not supported
        known, is_user = self._credentials.scram(user, self._mechanism)
        nonce += base64.urlsafe_b64encode(os.urandom(_NONCE_BYTES)).decode()
        challenge = f"r={nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}"
        last = _LAST.fullmatch((yield challenge.encode()))
        if last is None:
            raise self._wrong()
        signed = f"{bare},{challenge},{last['without']}".encode()
        is_proven = self._proves(known.stored_key, signed, last["proof"])
        if last["nonce"] != nonce or not (is_proven and is_user):
            raise self._wrong()
        self.user = user
        signature = hmac.digest(known.server_key, signed, self._algorithm)
        yield b"v=" + base64.b64encode(signature)

    def _proves(self, stored: bytes, signed: bytes, proof: str) -> bool:
        signature = hmac.digest(stored, signed, self._algorithm)
        given = base64.b64decode(proof, validate=True)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        digest = hashlib.new(self._algorithm, key).digest()
        return hmac.compare_digest(digest, stored) and len(given) == len(signature)


class Bearer:
    """OAUTHBEARER (RFC 7628), with unsigned tokens."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._failed = ""
        self.claimed = ""
        self.user: str | None = None
        self.expires: float | None = None

    def answer(self, data: bytes) -> bytes:
        """Check the token, or process the client's empty message after an error.

        Raises:
            RefusedError: The token is invalid or has expired.
        """
        if self._failed:
            raise RefusedError(self._failed)
        found = re.search(rb"\x01auth=[Bb]earer ([A-Za-z0-9._~+/=-]+)\x01", data)
        claims = _claims(found.group(1).decode()) if found else None
        self.claimed = "" if claims is None else str(claims["sub"])
        if claims is None or not claims["exp"] > self._clock():
            self._failed = json.dumps({"status": "invalid_token"})
            return self._failed.encode()
        self.user, self.expires = str(claims["sub"]), float(claims["exp"])
        return b""


def _claims(token: str) -> dict[str, Any] | None:
    """Return the claims of an unsigned token, or None if it is invalid."""
    try:
        head, body, _ = token.split(".")
        header, claims = (json.loads(_decoded(part)) for part in (head, body))
        is_one = header["alg"] == "none" and isinstance(claims["exp"] + 0, int | float)
        return claims if is_one and claims["sub"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


MECHANISMS: Mapping[str, Callable[[Credentials], Plain | Scram | Bearer]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": lambda credentials: Scram(credentials, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda credentials: Scram(credentials, "SCRAM-SHA-512"),
    "OAUTHBEARER": lambda _credentials: Bearer(),
}

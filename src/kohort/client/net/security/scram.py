"""SCRAM at the client (RFC 5802, RFC 7677), without I/O and without randomness."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from enum import Enum

from msgspec import Struct

from kohort.errors import LocalProtocolError, RemoteProtocolError

# RFC 7677 asks for at least 4096, with which a stolen exchange is slow to guess from. Kafka itself
# allows 4096 to 16384; a number far beyond would only keep a core of the client busy.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 100_000

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_HEADER = "n,,"  # no channel binding, which Kafka does not have
_BINDING = base64.b64encode(_HEADER.encode()).decode()


class ScramState(Enum):
    """What comes next."""

    BEGINNING = "send the first message"
    CHALLENGED = "receive salt and iterations"
    SALTING = "hash the password"
    PROVING = "receive the server's signature"
    DONE = "nothing"


class Salting(Struct, frozen=True):
    """How to hash the password: PBKDF2, which takes as long as an event loop must not stand still.

    Attributes:
        algorithm: Name of the hash function, as `hashlib` has it.
        salt: Chosen by the server.
        iterations: Likewise.
    """

    algorithm: str
    salt: bytes
    iterations: int

    def hashed(self, password: str) -> bytes:
        """Return the salted password."""
        # Kafka's servers take the password as UTF-8, not prepared by SASLprep.
        return hashlib.pbkdf2_hmac(self.algorithm, password.encode(), self.salt, self.iterations)


class Scram:
    """One exchange.

    Args:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        username: Name of the user.
        nonce: Random, of printable ASCII without a comma; never used twice.
        is_token: Whether the user is a delegation token (KIP-48).

    Attributes:
        state: Where it stands.
    """

    def __init__(
        self, mechanism: str, username: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.state = ScramState.BEGINNING
        self._algorithm = _HASHES[mechanism]
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._challenge = ""
        self._full_nonce = ""
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        self._go(ScramState.BEGINNING, ScramState.CHALLENGED)
        return f"{_HEADER}{self._bare}".encode()

    def challenged(self, challenge: bytes) -> Salting:
        """Take the server's first message; return how to hash the password.

        Raises:
            RemoteProtocolError: It is not what RFC 5802 says, or the iterations are out of bounds.
        """
        self._go(ScramState.CHALLENGED, ScramState.SALTING)
        fields = _fields(challenge, "r", "s", "i")
        self._full_nonce = fields["r"]
        if not self._full_nonce.startswith(self._nonce) or self._full_nonce == self._nonce:
            raise RemoteProtocolError("SCRAM: the server's nonce does not continue the client's")
        digits = fields["i"]
        iterations = (
            int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0
        )
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise RemoteProtocolError(
                f"SCRAM: the server wants {digits[:20]!r} iterations; {ITERATIONS_MIN} to"
                f" {ITERATIONS_MAX} are accepted"
            )
        salt = _decoded(fields["s"], "salt")
        if not salt:
            raise RemoteProtocolError("SCRAM: the server's salt is empty")
        self._challenge = challenge.decode()
        return Salting(self._algorithm, salt, iterations)

    def proof(self, salted: bytes) -> bytes:
        """Return the message that proves that the client knows the password."""
        self._go(ScramState.SALTING, ScramState.PROVING)
        last = f"c={_BINDING},r={self._full_nonce}"
        signed = f"{self._bare},{self._challenge},{last}".encode()
        key = self._mac(salted, b"Client Key")
        stored = hashlib.new(self._algorithm, key).digest()
        proof = bytes(a ^ b for a, b in zip(key, self._mac(stored, signed), strict=True))
        self._signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{last},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        """Check that the server knows the password as well.

        Raises:
            RemoteProtocolError: It does not, or refuses without Kafka's error code.
        """
        self._go(ScramState.PROVING, ScramState.DONE)
        fields = _fields(final, "v")
        if not hmac.compare_digest(_decoded(fields["v"], "signature"), self._signature):
            raise RemoteProtocolError(
                "SCRAM: the server's signature is wrong: it does not know the password, so it may"
                " not be the broker that it says it is"
            )

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._algorithm)

    def _go(self, expected: ScramState, to: ScramState) -> None:
        if self.state is not expected:
            raise LocalProtocolError(
                f"SCRAM: {expected.value} was expected, not {self.state.value}"
            )
        self.state = to


def _fields(message: bytes, *wanted: str) -> dict[str, str]:
    """Return the attributes of a message, which begins with those wanted, in their order."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise RemoteProtocolError("SCRAM: the server's message is not UTF-8") from None
    if parts[0].startswith("e="):
        raise RemoteProtocolError(f"SCRAM: the server refuses: {parts[0][2:100]!r}")
    if parts[0].startswith("m="):
        raise RemoteProtocolError("SCRAM: the server wants an extension that is not known")
    if len(parts) < len(wanted):
        raise RemoteProtocolError("SCRAM: the server's message is not complete")
    found: dict[str, str] = {}
    for name, part in zip(wanted, parts, strict=False):
        if not part.startswith(f"{name}="):
            raise RemoteProtocolError(f"SCRAM: the server's message lacks the attribute {name}")
        found[name] = part[2:]
    return found


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"SCRAM: the server's {what} is not base64") from None

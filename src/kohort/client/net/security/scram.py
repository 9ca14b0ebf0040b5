"""The client side of SCRAM (RFC 5802, RFC 7677), without I/O or randomness."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from enum import Enum

from msgspec import Struct

from kohort.errors import LocalProtocolError, RemoteProtocolError

# RFC 7677 requires at least 4096, to make guessing from a stolen exchange slow. Kafka itself
# allows 4096 to 16384; far more would only keep one of the client's cores busy.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 100_000

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_HEADER = "n,,"  # no channel binding, which Kafka does not support
_BINDING = base64.b64encode(_HEADER.encode()).decode()


class ScramState(Enum):
    """The next step of an exchange."""

    BEGINNING = "send the first message"
    CHALLENGED = "receive salt and iterations"
    SALTING = "hash the password"
    PROVING = "receive the server's signature"
    DONE = "nothing"


class Salting(Struct, frozen=True):
    """Parameters for hashing the password with PBKDF2, which is too slow for an event loop.

    Attributes:
        algorithm: Name of the hash function in `hashlib`.
        salt: Chosen by the server.
        iterations: Chosen by the server.
    """

    algorithm: str
    salt: bytes
    iterations: int

    def hashed(self, password: str) -> bytes:
        """Return the salted password."""
        # Kafka's servers use the password as UTF-8, without SASLprep.
        return hashlib.pbkdf2_hmac(self.algorithm, password.encode(), self.salt, self.iterations)


class Scram:
    """One exchange.

    Args:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        username: User name.
        nonce: Random printable ASCII without commas; never used twice.
        is_token: Whether the user is a delegation token (KIP-48).

    Attributes:
        state: The current state.
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
        """Process the server's first message; return how to hash the password.

        Raises:
            RemoteProtocolError: It violates RFC 5802, or the iterations are out of range.
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
        """Return the message that proves knowledge of the password."""
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
            RemoteProtocolError: It does not, or it refuses without a Kafka error code.
        """
        self._go(ScramState.PROVING, ScramState.DONE)
        fields = _fields(final, "v")
        if not hmac.compare_digest(_decoded(fields["v"], "signature"), self._signature):
            raise RemoteProtocolError(
                "SCRAM: the server's signature is wrong: it does not know the password, so it may"
                " not be the broker that it claims to be"
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
    """Return the attributes of a message, which must start with the wanted ones, in order."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise RemoteProtocolError("SCRAM: the server's message is not UTF-8") from None
    if parts[0].startswith("e="):
        raise RemoteProtocolError(f"SCRAM: the server refuses: {parts[0][2:100]!r}")
    if parts[0].startswith("m="):
        raise RemoteProtocolError("SCRAM: the server requires an unknown extension")
    if len(parts) < len(wanted):
        raise RemoteProtocolError("SCRAM: the server's message is incomplete")
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

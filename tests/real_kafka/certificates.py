"""Certificates for tests: an authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates.

    Attributes:
        folder: Where its files are.
        ca: PEM file of its own certificate.
    """

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.certificate = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        ).sign(self._key, hashes.SHA256())  # fmt: skip
        self.ca.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def sign(
        self,
        name: str,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        *,
        has_expired: bool = False,
        password: str | None = None,
    ) -> Signed:
        """Make a key and a certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        begin = -10 * _DAY
        certificate = (
            _builder(
                _named(name), self._name, key.public_key(), begin, -_DAY if has_expired else _DAY
            )
            .add_extension(x509.SubjectAlternativeName([_alternative(h) for h in hosts]), False)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Signed(self, name, key, certificate, password)


class Signed:
    """A key and its certificate.

    Attributes:
        keystore: PEM file with both, as Kafka's brokers and clients take it.
        certificate: PEM file of the certificate alone.
        key: PEM file of the key alone.
        p12: Both and the authority as PKCS12, its password is `PASSWORD`.
        trust_p12: The authority alone, likewise.
    """

    PASSWORD = "store-secret"

    def __init__(
        self,
        authority: Authority,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        password: str | None,
    ) -> None:
        folder = authority.folder
        self._private = key
        hidden: KeySerializationEncryption = NoEncryption()
        if password is not None:
            hidden = BestAvailableEncryption(password.encode())
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
        certificate_pem = certificate.public_bytes(Encoding.PEM)
        self.keystore = _written(folder / f"{name}.pem", key_pem + certificate_pem)
        self.certificate = _written(folder / f"{name}.crt", certificate_pem)
        self.key = _written(folder / f"{name}.key", key_pem)
        in_store = BestAvailableEncryption(self.PASSWORD.encode())
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [authority.certificate], in_store
        )
        self.p12 = _written(folder / f"{name}.p12", store)
        trust = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(authority.certificate, b"ca")], in_store
        )
        self.trust_p12 = _written(folder / f"{name}-trust.p12", trust)

    def key_p12(self) -> bytes:
        """Return a store of the type PKCS12 with the key alone."""
        in_store = BestAvailableEncryption(self.PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(None, self._private, None, None, in_store)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime.timedelta = -_DAY,
    end: datetime.timedelta = 10 * _DAY,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begin)
        .not_valid_after(now + end)
    )

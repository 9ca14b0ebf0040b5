"""Certificates for brokers in tests: an authority and signed certificates, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.extras import needed_by

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

HOSTS = ("localhost", "127.0.0.1", "::1")
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)


class Certificates:
    """Creates certificates in a folder.

    Attributes:
        ca: PEM file of the authority's certificate.
    """

    def __init__(self, folder: Path) -> None:
        """Create the authority.

        Raises:
            MissingExtraError: `cryptography` is not installed.
        """
        with needed_by("a broker that makes its own certificates"):
            from cryptography.hazmat.primitives.asymmetric import ec
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed("kohort test authority", (), self._key, is_ca=True)
        self.ca = self._write("ca.pem", [self._certificate], None)

    def sign(self, name: str, hosts: Sequence[str] = HOSTS) -> Path:
        """Create a key with a certificate, and return their PEM file."""
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(f"{name}.pem", [self._signed(name, hosts, key)], key)

    def _signed(
        self, name: str, hosts: Sequence[str], key: ec.EllipticCurvePrivateKey, is_ca: bool = False
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import NameOID

        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if is_ca else self._certificate.subject
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _AFTER)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(
        self,
        name: str,
        certificates: Sequence[x509.Certificate],
        key: ec.EllipticCurvePrivateKey | None,
    ) -> Path:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        data = b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
        if key is not None:
            data += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

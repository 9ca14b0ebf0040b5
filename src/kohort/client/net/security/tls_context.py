"""Make an `ssl.SSLContext` from the TLS settings: certificates and keys, as files or texts."""

from __future__ import annotations

import logging
import os
import re
import ssl
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from kohort.client.config.contradictions import dotted
from kohort.client.config.security import SecurityConfig
from kohort.errors import ConfigError
from kohort.extras import needed_by

log = logging.getLogger("kohort.client")

_JKS = b"\xfe\xed\xfe\xed"
_PEM = b"-----BEGIN "
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
# A bundle of all public certificate authorities has 0.2 MiB.
_LARGEST_FILE = 16 * 1024 * 1024
_NO_CERTIFICATE = "it has no certificates in PEM"
_NO_KEY = "it has no private key and certificate in PEM, or ssl.key.password is wrong"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(config: SecurityConfig) -> ssl.SSLContext:
    """Return the context for connections to brokers; reads the files.

    Raises:
        ConfigError: A file cannot be read, or is invalid; the error names the setting.
    """
    if config.ssl_context is not None:
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[each] for each in config.tls_versions()]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A broker has no reason to renegotiate, and the state machine does not expect it.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config.ssl_endpoint_identification_algorithm.lower() != "https":
        log.warning(
            "ssl.endpoint.identification.algorithm is off: host names are not checked against"
            " certificates, so anyone with a certificate from a trusted authority can impersonate a"
            " broker; set it to https"
        )
        context.check_hostname = False
    _trust(context, config)
    _identify(context, config)
    return context


def _trust(context: ssl.SSLContext, config: SecurityConfig) -> None:
    if config.ssl_ca_location is not None:
        trust_location(context, "ssl_ca_location", config.ssl_ca_location)
    elif config.ssl_truststore_certificates is not None:
        with _told("ssl_truststore_certificates"):
            given = config.ssl_truststore_certificates
            context.load_verify_locations(cadata=_without_names(_in_lines(given).encode()))
    elif config.ssl_truststore_location is not None:
        name = "ssl_truststore_location"
        data = _read(name, config.ssl_truststore_location)
        if _kind(name, data, config.ssl_truststore_type) == "PKCS12":
            _, certificates = _opened(name, data, config.ssl_truststore_password)
            if not certificates:
                raise ConfigError(f"{dotted(name)} has no certificates")
            data = b"".join(certificates)
        with _told(name):
            context.load_verify_locations(cadata=_without_names(data))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def trust_location(context: ssl.SSLContext, name: str, location: str) -> None:
    """Trust the PEM certificates of a file or a folder.

    Args:
        context: The context to add them to.
        name: The setting.
        location: The file or folder.

    Raises:
        ConfigError: There are no certificates.
    """
    with _told(name):
        if Path(location).is_dir():
            # OpenSSL itself requires files that are named by hashes.
            data = "\n".join(
                _without_names(each.read_bytes())
                for each in sorted(Path(location).iterdir())
                if each.suffix in (".pem", ".crt", ".cer")
            )
            if not data:
                raise ConfigError(
                    f"{dotted(name)}: {location} has no .pem, .crt or .cer files with any"
                )
            context.load_verify_locations(cadata=data)
            return
    data = _without_names(_read(name, location))
    with _told(name):
        context.load_verify_locations(cadata=data)


def _in_lines(pem: str) -> str:
    """Return PEM with the line breaks that OpenSSL requires: Java's clients accept single lines."""

    def block(found: re.Match[str]) -> str:
        kind, body = found.groups()
        if ":" in body:  # headers of an encrypted key, which are separate lines
            return found[0]
        lines = "\n".join(textwrap.wrap("".join(body.split()), 64))
        return f"\n-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"

    return _BLOCK.sub(block, pem)


def _without_names(pem: bytes) -> str:
    # PEM is ASCII, but tools write unencoded names of authorities between certificates.
    return pem.decode("ascii", "ignore")


def _identify(context: ssl.SSLContext, config: SecurityConfig) -> None:
    """Load the client's own certificate, if there is one."""
    password = config.ssl_key_password
    if config.ssl_certificate_location is not None:
        name = "ssl_certificate_location"
        pem = _read(name, config.ssl_certificate_location)
        pem += b"\n" + _read("ssl_key_location", config.ssl_key_location or "")
    elif config.ssl_keystore_certificate_chain is not None:
        name = "ssl_keystore_certificate_chain"
        given = f"{config.ssl_keystore_certificate_chain}\n{config.ssl_keystore_key}"
        pem = _in_lines(given).encode()
    elif config.ssl_keystore_location is not None:
        name = "ssl_keystore_location"
        pem = _read(name, config.ssl_keystore_location)
        if _kind(name, pem, config.ssl_keystore_type) == "PKCS12":
            key, certificates = _opened(name, pem, config.ssl_keystore_password)
            if key is None:
                raise ConfigError(f"{dotted(name)} has no private key")
            pem = key + b"".join(certificates)
        elif password is None:
            password = config.ssl_keystore_password
    else:
        return
    with _told(name, _NO_KEY), _as_file(pem) as path:
        context.load_cert_chain(path, password=_asked(password))


def _asked(password: str | None) -> Callable[[], str]:
    """Return OpenSSL's password callback; without one, it would prompt in the terminal."""

    def answer() -> str:
        if password is None:
            raise ConfigError("the private key is encrypted: set ssl.key.password")
        return password

    return answer


def _read(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{dotted(name)}: {location}: {error.strerror or error}") from None
    except ValueError:  # from a null character
        raise ConfigError(f"{dotted(name)}: {location!r} is not a valid file name") from None
    if not data or len(data) > _LARGEST_FILE:
        raise ConfigError(f"{dotted(name)}: {location} is {'too large' if data else 'empty'}")
    return data


def _kind(name: str, data: bytes, told: str | None) -> str:
    """Return PEM or PKCS12.

    A store of the type JKS is read as PKCS12 if the file is PKCS12, as in Java.
    """
    if data.startswith(_JKS):
        raise ConfigError(
            f"{dotted(name)} is a store of Java's own format JKS, which is not supported; convert"
            " it: keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12"
            f" -deststoretype PKCS12, and set {dotted(name)} to the result"
        )
    found = "PEM" if _PEM in data else "PKCS12"
    if told is not None and told.upper() in ("PEM", "PKCS12") and told.upper() != found:
        raise ConfigError(f"{dotted(name)} is not {told.upper()}; it looks like {found}")
    return found


def _opened(name: str, data: bytes, password: str | None) -> tuple[bytes | None, list[bytes]]:
    """Return the private key and the certificates of a PKCS12 store, as PEM."""
    with needed_by("a store of the type PKCS12"):
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigError(
            f"{dotted(name)} is no PKCS12 store, or {dotted(name.replace('location', 'password'))}"
            " is wrong"
        ) from None
    found = [*([store.cert] if store.cert else []), *store.additional_certs]
    certificates = [each.certificate.public_bytes(Encoding.PEM) for each in found]
    if store.key is None:
        return None, certificates
    return (
        store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificates,
    )


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Provide a file for OpenSSL, which reads keys only from files; in memory where possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kohort", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(pem)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
        file.write(pem)
        file.flush()
        yield file.name


@contextmanager
def _told(name: str, otherwise: str = _NO_CERTIFICATE) -> Iterator[None]:
    """Name the setting when OpenSSL rejects its value; no error shows the value."""
    try:
        yield
    except ssl.SSLError as error:
        _refuse(name, error, otherwise)
    except OSError as error:
        raise ConfigError(f"{dotted(name)}: {error.strerror or error}") from None
    except ConfigError:
        raise
    except (TypeError, ValueError):  # raised by `ssl` itself, before OpenSSL is called
        raise ConfigError(f"{dotted(name)}: {otherwise}") from None


def _refuse(name: str, error: ssl.SSLError, otherwise: str) -> NoReturn:
    reason = error.reason or ""
    why = {
        "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
        "BAD_DECRYPT": "ssl.key.password is wrong",
        "BAD_PASSWORD_READ": "ssl.key.password is wrong",
    }.get(reason, f"{otherwise} ({reason})" if reason else otherwise)
    raise ConfigError(f"{dotted(name)}: {why}") from None

"""A private KDC of MIT Kerberos on loopback, and an Apache Kafka that takes its tickets."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.broker.processes import eventually
from tests.real_kafka.broker import FAST_START, RealKafka, free_ports

REALM = "KOHORT.TEST"
SERVICE = "kafka/localhost"
LISTENERS = {"KERBEROS": "SASL_PLAINTEXT"}
_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_PATIENCE_S = 30


def program(name: str) -> str:
    """Where a program is; those of the KDC are often not in the path of a user."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
    assert found is not None, f"{name} is not installed"
    return found


class Kdc:
    """A KDC with a realm of its own, as a context manager.

    Attributes:
        environment: What programs need to use this realm.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.config = folder / "krb5.conf"
        profile = folder / "kdc.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n rdns = false\n dns_canonicalize_hostname = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        profile.write_text(
            "[kdcdefaults]\n"
            f" kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n"
            f"  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/kadm5.acl\n"
            " }\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        self.environment = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            [program("krb5kdc"), "-n", "-r", REALM, "-P", str(self._folder / "pid")],
            env=self._env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._serves, "the KDC serves")
        return self

    def _serves(self) -> bool:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the KDC has ended: {self._process.wait(0.05)}")
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def add(self, principal: str) -> Path:
        """Add a principal with a key, and return its key tab."""
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, keytab: Path, principal: str) -> Path:
        """Get a ticket as `kinit` does, and return its cache."""
        cache = self._folder / f"{principal}.cache"
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)
        return cache

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [program(name), *arguments],
            env=self._env(),
            check=True,
            capture_output=True,
            timeout=60,
        )

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}


class KerberosKafka(RealKafka):
    """One node with a listener for tickets."""

    def __init__(self, folder: Path, kdc: Kdc, jvm_options: Sequence[str] = FAST_START) -> None:
        jaas = (
            f'{_MODULE} required useKeyTab=true storeKey=true keyTab="{kdc.add(SERVICE)}"'
            f' principal="{SERVICE}@{REALM}";'
        )
        settings = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.kerberos.gssapi.sasl.jaas.config": jaas,
        }
        options = (*jvm_options, f"-Djava.security.krb5.conf={kdc.config}")
        super().__init__(folder, settings, options, listeners=LISTENERS)

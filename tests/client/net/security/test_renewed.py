"""Certificates that are renewed while a client runs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient
from kohort.broker import Acl, EmbeddedBroker, Operation, Resource, Security
from kohort.client.config.definitions import ClientConfig, make_from_kafka
from kohort.client.net.security.context import security_of
from tests.broker.processes import eventually
from tests.real_kafka.broker import free_ports
from tests.real_kafka.certificates import Authority

SETTING = {"bootstrap.servers": "localhost:1", "security.protocol": "SSL"}


def test_a_new_connection_uses_the_new_certificate(tmp_path: Path) -> None:
    """The broker identifies users by certificate, and shows each only what it may see."""
    pem, (port,) = tmp_path / "client.pem", free_ports(1)
    security = Security("SSL", client_certificates=True, super_users=[])
    broker = EmbeddedBroker(tmp_path / "data", security=security, port=port)

    def renew(name: str) -> dict[str, Any]:
        settings = broker.client_settings(name)
        made = tmp_path / f"{name}.pem"
        shutil.copy(settings["ssl.key.location"], made)
        made.rename(pem)
        return {**settings, "ssl.certificate.location": str(pem), "ssl.key.location": str(pem)}

    with broker:
        broker.create_topic("flights")
        broker.create_acls([Acl("User:CN=new", Operation.READ, Resource.TOPIC, "flights")])
        admin = AdminClient.from_config(renew("old"))
        assert admin.list_topics() == frozenset()
        renew("new")
        assert admin.list_topics() == frozenset()
    with broker, admin:
        eventually(lambda: admin.list_topics() == {"flights"}, "the new certificate is used", 60)


@pytest.mark.parametrize("as_folder", [False, True])
def test_files_that_have_changed(
    as_folder: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    (tmp_path / "trusted").mkdir()
    one, other = (Authority(tmp_path / name).ca.read_bytes() for name in ("one", "other"))
    ca = tmp_path / "trusted" / "ca.pem"
    ca.write_bytes(one)
    location = str(ca.parent if as_folder else ca)
    tls = security_of(make_from_kafka(ClientConfig, {**SETTING, "ssl.ca.location": location})).tls
    assert tls is not None
    first = tls.context
    assert tls.context is first
    ca.write_bytes(b"half of it")
    assert tls.context is tls.context is first
    (told,) = caplog.messages
    assert "cannot be used (ssl.ca.location" in told
    ca.write_bytes(other + one)
    second = tls.context
    assert tls.context is second is not first
    assert len(second.get_ca_certs()) == 2
    assert "new connections use the new files" in caplog.messages[-1]
    ca.unlink()
    assert tls.context is second

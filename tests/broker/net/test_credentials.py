"""SCRAM credentials set by clients: logins afterwards, and the stored file (KIP-554)."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kohort.broker import EmbeddedBroker, Security
from kohort.broker.log.directory import DataDirectoryError
from kohort.broker.log.storage import Storage
from kohort.broker.net.credentials import Credentials, ScramCredential
from kohort.broker.net.sasl_mechanisms import MECHANISMS, RefusedError
from kohort.client import AdminClient as OurAdmin
from kohort.errors import AuthenticationError, KafkaError

USERS = {"alice": "alice-secret"}
FILE = "scram-credentials.json"
WAIT_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with secured(tmp_path) as started:
        yield started


def secured(folder: Path) -> EmbeddedBroker:
    return EmbeddedBroker(folder, security=Security("SASL_PLAINTEXT", users=USERS))


def admin(broker: EmbeddedBroker, user: str, password: str, mechanism: str) -> AdminClient:
    settings = {**broker.librdkafka_settings(), "sasl.username": user, "sasl.password": password}
    return AdminClient({**settings, "sasl.mechanism": mechanism})


def setting(
    user: str, password: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256
) -> UserScramCredentialUpsertion:
    info = ScramCredentialInfo(mechanism, 5_000)
    return UserScramCredentialUpsertion(user, info, password.encode())


def change(broker: EmbeddedBroker, *changes: UserScramCredentialAlteration) -> None:
    client = admin(broker, "alice", "alice-secret", "PLAIN")
    for done in client.alter_user_scram_credentials(list(changes)).values():
        done.result(WAIT_S)


def may_log_in(broker: EmbeddedBroker, user: str, password: str, mechanism: str) -> bool:
    settings = {
        **broker.client_settings(),
        "sasl.username": user,
        "sasl.password": password,
        "sasl.mechanism": mechanism,
        "sasl.allow.unencrypted": True,
    }
    try:
        with OurAdmin.from_config(settings) as client:
            client.list_topics()
    except AuthenticationError:
        return False
    return True


def test_a_user_that_a_client_has_added_can_log_in(broker: EmbeddedBroker) -> None:
    assert not may_log_in(broker, "bob", "bob-secret", "SCRAM-SHA-256")
    change(broker, setting("bob", "bob-secret"))
    assert may_log_in(broker, "bob", "bob-secret", "SCRAM-SHA-256")
    assert not may_log_in(broker, "bob", "bob-secrets", "SCRAM-SHA-256")
    assert not may_log_in(broker, "bob", "bob-secret", "SCRAM-SHA-512")
    assert not may_log_in(broker, "bob", "bob-secret", "PLAIN")


def test_a_credential_replaces_the_password_for_its_mechanism(broker: EmbeddedBroker) -> None:
    change(broker, setting("alice", "other"))
    assert may_log_in(broker, "alice", "other", "SCRAM-SHA-256")
    assert not may_log_in(broker, "alice", "alice-secret", "SCRAM-SHA-256")
    assert may_log_in(broker, "alice", "alice-secret", "SCRAM-SHA-512")
    change(broker, UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256))
    for password in ("other", "alice-secret"):
        assert not may_log_in(broker, "alice", password, "SCRAM-SHA-256")


def test_what_was_set_is_there_after_a_restart(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        change(broker, setting("bob", "bob-secret"))
        change(broker, UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512))
    file = tmp_path / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"bob-secret" not in file.read_bytes()
    with secured(tmp_path) as broker:
        assert may_log_in(broker, "bob", "bob-secret", "SCRAM-SHA-256")
        assert not may_log_in(broker, "alice", "alice-secret", "SCRAM-SHA-512")
        assert may_log_in(broker, "alice", "alice-secret", "SCRAM-SHA-256")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[{"user": "bob"')
    with pytest.raises(DataDirectoryError, match=f"{FILE}.*is damaged.*or remove it"):
        secured(tmp_path).start()


def test_a_disk_that_takes_nothing_changes_nothing(tmp_path: Path) -> None:
    credentials = Credentials(USERS, MECHANISMS, tmp_path / "missing" / FILE, Storage())
    some = ScramCredential.of("SCRAM-SHA-256", b"salted", b"salt", 4_096)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        credentials.change({("bob", "SCRAM-SHA-256"): some})
    assert not credentials.has(("bob", "SCRAM-SHA-256"))


def test_users_are_described_with_their_mechanisms(broker: EmbeddedBroker) -> None:
    change(broker, setting("bob", "bob-secret", ScramMechanism.SCRAM_SHA_512))
    client = admin(broker, "alice", "alice-secret", "PLAIN")
    described: Any = client.describe_user_scram_credentials()
    found = {
        name: {(info.mechanism.name, info.iterations) for info in each.scram_credential_infos}
        for name, each in described.result(WAIT_S).items()
    }
    assert found == {
        "alice": {("SCRAM_SHA_256", 4_096), ("SCRAM_SHA_512", 4_096)},
        "bob": {("SCRAM_SHA_512", 5_000)},
    }


def test_a_wrong_change_is_refused_and_others_are_made(broker: EmbeddedBroker) -> None:
    client = admin(broker, "alice", "alice-secret", "PLAIN")
    nothing = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    done = client.alter_user_scram_credentials([setting("bob", "bob-secret"), nothing])
    done["bob"].result(WAIT_S)
    with pytest.raises(KafkaException, match="'carol' has no SCRAM-SHA-256 credential"):
        done["carol"].result(WAIT_S)


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_an_exchange_hashes_alike_for_known_and_unknown_users(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the time until the first response would reveal which users exist."""
    credentials = Credentials(USERS, MECHANISMS, tmp_path / FILE, Storage())
    calls: list[object] = []
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *given: calls.append(given))
    made: list[str] = []
    of = ScramCredential.of

    def noted(mechanism: str, *given: Any) -> ScramCredential:
        made.append(mechanism)
        return of(mechanism, *given)

    monkeypatch.setattr(ScramCredential, "of", noted)
    exchange = MECHANISMS["SCRAM-SHA-256"](credentials)
    nonce = exchange.answer(f"n,,n={user},r=abc".encode()).split(b",")[0]
    with pytest.raises(RefusedError, match="invalid credentials"):
        exchange.answer(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
    assert calls == []
    assert len(made) == 1


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_secrets_are_compared_in_constant_time(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `hmac.compare_digest`, on digests of equal length."""
    credentials = Credentials(USERS, MECHANISMS, tmp_path / FILE, Storage())
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for password in ("alice-secret", "", os.urandom(40).hex()):
        right = user == "alice" and password == "alice-secret"
        assert credentials.check(user, password) == right
    assert {len(each) for pair in compared for each in pair} == {32}

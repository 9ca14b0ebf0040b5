"""Which message belongs to which API key."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from kohort.errors import RemoteProtocolError
from kohort.wire import apis, messages
from kohort.wire.codec.schema import Message, Request


def declared() -> dict[int, type[Message]]:
    """All requests that any module declares."""
    modules = [
        import_module(f"{messages.__name__}.{found.name}")
        for found in pkgutil.iter_modules(messages.__path__)
    ]
    classes = [each for module in modules for each in vars(module).values()]
    return {
        each.api_key: each
        for each in classes
        if isinstance(each, type) and issubclass(each, Request) and each is not Request
    }


def test_every_declared_api_is_listed_under_its_key() -> None:
    found = declared()
    assert found.keys() == {*apis.KAFKA, *apis.PRIVATE}
    for key, request in found.items():
        assert apis.request_class(key) is request
        assert apis.response_class(key).api_key == key


def test_an_unknown_key_is_an_error_of_the_peer() -> None:
    for look_up in (apis.request_class, apis.response_class):
        with pytest.raises(RemoteProtocolError, match="12345"):
            look_up(12_345)


def test_a_consumer_starts_without_the_messages_of_administrators() -> None:
    script = (
        "import sys; from kohort import Consumer; "
        "print(*(name for name in sys.modules if name.startswith('kohort.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    assert "kohort.client.consumer.api" in loaded
    assert not loaded & {
        "kohort.broker",
        "kohort.client.admin.api",
        "kohort.client.producer.api",
        "kohort.wire.messages.acls",
        "kohort.wire.messages.configs",
        "kohort.wire.messages.group_records",
    }

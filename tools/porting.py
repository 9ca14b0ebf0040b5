"""Write docs/porting.md: differences from other Python clients that raise no error.

Texts are in docs/porting.toml. Names and defaults of settings are read from the installed clients:
kafka-python's and aiokafka's from their classes, confluent-kafka's from librdkafka itself.
"""

from __future__ import annotations

import ctypes
import inspect
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from kohort.client.config.definitions import ClientConfig, ConsumerConfig, ProducerConfig
from kohort.values import defaults

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "porting.md"
DATA = ROOT / "docs" / "porting.toml"
PEERS = ("kafka-python", "confluent-kafka", "aiokafka")
CLIENTS: dict[str, type[ClientConfig]] = {"consumer": ConsumerConfig, "producer": ProducerConfig}
MISSING = object()  # the peer has no such setting

HEAD = """# Coming from another client

The differences from kafka-python, confluent-kafka and aiokafka that cause **no error**: the program
runs, but behaves differently. Settings that are not listed have the same default or exist only on
one side; kohort refuses an unknown setting by name.

`python tools/porting.py` generates this page from `docs/porting.toml` and the defaults of the
installed clients.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A default that differs.

    Attributes:
        client: "consumer" or "producer".
        name: Our name for it.
        ours: Our default.
        theirs: The peer's name for it.
        default: The peer's default.
    """

    client: str
    name: str
    ours: str
    theirs: str
    default: str


@cache
def data() -> dict[str, Any]:
    """Return the texts."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def differing(peer: str) -> list[Setting]:
    """Return the settings that a peer also has, but with another default."""
    found = []
    for client, config in CLIENTS.items():
        for name, ours in defaults(config).items():
            theirs = data()["names"].get(peer, {}).get(name) or _spelled(peer, name)
            default = _default(peer, client, theirs)
            if name in _IGNORED or default is MISSING:
                continue
            if _plain(default) != _plain(ours):
                found.append(Setting(client, name, _shown(ours), theirs, _shown(default)))
    return found


def _spelled(peer: str, name: str) -> str:
    return name.replace("_", ".") if peer == "confluent-kafka" else name


def _default(peer: str, client: str, name: str) -> object:
    if peer == "confluent-kafka":
        return _librdkafka().get(name)
    return _python_defaults(peer, client).get(name, MISSING)


@cache
def _python_defaults(peer: str, client: str) -> Mapping[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if peer == "kafka-python":
            import kafka

            kinds: dict[str, Any] = {
                "consumer": kafka.KafkaConsumer,
                "producer": kafka.KafkaProducer,
            }
            return dict(kinds[client].DEFAULT_CONFIG)
        import aiokafka

        kinds = {"consumer": aiokafka.AIOKafkaConsumer, "producer": aiokafka.AIOKafkaProducer}
        parameters = inspect.signature(kinds[client]).parameters
        return {name: each.default for name, each in parameters.items()}


class _Librdkafka:
    """The library inside confluent-kafka, which returns its defaults."""

    def __init__(self) -> None:
        (path,) = (
            file.locate()
            for file in distribution("confluent-kafka").files or ()
            if file.name.startswith("librdkafka-")
        )
        self._library = ctypes.CDLL(str(path))
        self._configs = []
        for kind in ("", "topic_"):
            make = getattr(self._library, f"rd_kafka_{kind}conf_new")
            make.restype = ctypes.c_void_p
            get = getattr(self._library, f"rd_kafka_{kind}conf_get")
            self._configs.append((get, ctypes.c_void_p(make())))

    def get(self, name: str) -> object:
        """Return a default as text, `MISSING` for no such setting."""
        for get, config in self._configs:
            size = ctypes.c_size_t(512)
            text = ctypes.create_string_buffer(size.value)
            if get(config, name.encode(), text, ctypes.byref(size)) == 0:
                return text.value.decode()
        return MISSING


@cache
def _librdkafka() -> _Librdkafka:
    return _Librdkafka()


# Values that mean the same in different clients.
_SAME = {
    "all": "-1",
    "": "none",
    "inf": "none",
    "largest": "latest",
    "defaultpartitioner": "murmur2",
}
# Programs that rely on these set them.
_IGNORED = ("bootstrap_servers", "client_id", "security_protocol")


def _plain(value: object) -> str:
    text = ",".join(map(_named, value)) if isinstance(value, tuple) else _named(value)
    return _SAME.get(text.lower(), text.lower())


def _named(value: object) -> str:
    """Return a value as text; for a class its name, such as `range` for the range assignor."""
    if isinstance(value, type):
        return value.__name__.removesuffix("PartitionAssignor").lower()
    if value is None or isinstance(value, (str, int, float)):
        return str(value)
    return "unset" if type(value) is object else type(value).__name__


def _shown(value: object) -> str:
    text = ", ".join(map(_named, value)) if isinstance(value, tuple) else _named(value)
    if text.isdigit():
        return f"{int(text):,}"
    return "unset" if text in ("", "None") else ", ".join(map(str.strip, text.lower().split(",")))


def page() -> str:
    """Return the page."""
    return HEAD + "".join(_section(peer) for peer in PEERS)


def _section(peer: str) -> str:
    lines = [f"\n## {peer} {version(peer).rpartition('.')[0]}\n", *_defaults_table(peer), ""]
    lines += [f"| what | kohort | {peer} |", "|---|---|---|"]
    for each in data()["behaviour"]:
        if peer in each:
            lines.append(f"| {each['what']} | {each['kohort']} | {each[peer]} |")
    return "\n".join(lines) + "\n"


def _defaults_table(peer: str) -> Iterator[str]:
    yield f"| default of | kohort | {peer} | |"
    yield "|---|---|---|---|"
    shown: set[tuple[str, str, str]] = set()
    for each in differing(peer):
        if (each.name, each.ours, each.default) in shown:
            continue
        shown.add((each.name, each.ours, each.default))
        theirs = each.default if each.theirs == each.name else f"{each.default} (`{each.theirs}`)"
        text = data()["defaults"][each.name]
        yield f"| `{each.name}` | {each.ours} | {theirs} | {text} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

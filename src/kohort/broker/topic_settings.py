"""Settings of topics: Kafka's names, types and ranges.

All settings of Kafka 4.3 are accepted, stored and returned, so that topics can be created with the
same settings here. `log.config` has those that this broker uses; the others have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Kafka's numbers of setting types (KIP-569)."""

_INT_RANGE, _LONG_RANGE = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class TopicSetting(Struct, frozen=True):
    """The valid values of a setting.

    Attributes:
        kind: Number of its type.
        least: Smallest number.
        most: Largest number.
        words: Pattern of a word, or of each word of a list.
    """

    kind: int
    least: float = _LONG_RANGE[0]
    most: float = _LONG_RANGE[1]
    words: str = r".*"

    def normal(self, value: str) -> str | None:
        """Return a value in Kafka's normal form, or None if it is invalid."""
        text = value.strip()
        if self.kind in (INT, LONG):
            return self._number(text, _WHOLE, int)
        if self.kind == DOUBLE:
            return self._number(text, _REAL, float)
        if self.kind == BOOLEAN:
            text = text.lower()
        words = words_of(text) if self.kind == LIST else [text]
        fits = all(re.fullmatch(self.words, word) for word in words)
        return ",".join(dict.fromkeys(words)) if fits else None

    def _number(self, text: str, form: re.Pattern[str], read: type[float]) -> str | None:
        if form.fullmatch(text) is None or not self.least <= read(text) <= self.most:
            return None
        shown = str(read(text))
        return shown if re.fullmatch(self.words, shown) else None


def _int(least: int, most: int = _INT_RANGE[1]) -> TopicSetting:
    return TopicSetting(INT, least, most)


def _long(least: int) -> TopicSetting:
    return TopicSetting(LONG, least)


_FLAG = TopicSetting(BOOLEAN, words="true|false")
_REPLICAS = TopicSetting(LIST, words=r"\*|none|[0-9]+:[0-9]+")
# There is no remote storage, so it cannot be enabled.
_NO = TopicSetting(BOOLEAN, words="false")

SETTINGS: Mapping[str, TopicSetting] = {
    "cleanup.policy": TopicSetting(LIST, words="compact|delete"),
    "compression.gzip.level": TopicSetting(INT, words="-1|[1-9]"),
    "compression.lz4.level": _int(1, 17),
    "compression.type": TopicSetting(STRING, words="uncompressed|zstd|lz4|snappy|gzip|producer"),
    "compression.zstd.level": _int(-131_072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "follower.replication.throttled.replicas": _REPLICAS,
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": _REPLICAS,
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": TopicSetting(STRING, words="CreateTime|LogAppendTime"),
    "min.cleanable.dirty.ratio": TopicSetting(DOUBLE, 0, 1),
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _FLAG,
    "remote.log.copy.disable": _FLAG,
    "remote.log.delete.on.disable": _FLAG,
    "remote.storage.enable": _NO,
    "retention.bytes": _long(_LONG_RANGE[0]),
    "retention.ms": _long(-1),
    # Kafka's minimum is 1 MiB since 4.1; tests of segment ends need small segments.
    "segment.bytes": _int(14),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _FLAG,
}


def problem(configs: Mapping[str, str]) -> str | None:
    """Return why a topic's settings are invalid, or None if they are valid."""
    for name, value in configs.items():
        setting = SETTINGS.get(name)
        if setting is None:
            return f"Unknown topic config name: {name}"
        if setting.normal(value) is None:
            return f"Invalid value {value} for configuration {name}"
    return None


def words_of(text: str) -> list[str]:
    """Split a list of words as Kafka does."""
    return [word.strip() for word in text.split(",")] if text.strip() else []

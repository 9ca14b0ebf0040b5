"""Requests of every kind, with significant values and mutated bytes."""

from __future__ import annotations

import random
import struct as layouts
import uuid
from typing import Any

from kohort.wire.codec.schema import ZERO_UUID, FieldSpec, Message, Struct, fields_of
from tests.broker.log.batches import batch

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_STRINGS = (
    *("", "t", "g", "a/b", "é", "x" * 300, "(", ".*", "1", "7000"),
    *("__consumer_offsets", "consumer", "range", "uniform", "retention.ms", "user"),
)
_BYTES = (b"", b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff", b"\xff" * 9)
_RECORDS = (b"", batch(b"x"), batch(b"x")[:-3], batch(b"a", b"b", key=b"k"))
# Valid values, which here would only make the test wait.
_SHORT = {"max_wait_ms": (0, 1, 5, -1), "count": (-1, 0, 1, 3), "num_partitions": (-1, 0, 1, 3)}


class Enemy:
    """Draws requests; an existing topic id is among the values."""

    def __init__(self, seed: int, topic_id: uuid.UUID) -> None:
        self.chance = random.Random(seed)
        self._ids = (ZERO_UUID, topic_id, uuid.UUID(int=77))

    def message(self, cls: type[Message], version: int) -> Message:
        """Return a request that can be encoded."""
        made = self._struct(cls, version)
        assert isinstance(made, Message)
        return made

    def _struct(self, cls: type[Struct], version: int) -> Struct:
        specs = (spec for spec in fields_of(cls, version) if spec.present)
        return cls(**{spec.name: self._field(spec, version) for spec in specs})

    def _field(self, spec: FieldSpec, version: int) -> Any:
        if spec.nullable and self.chance.random() < 0.2:
            return None
        if spec.array:
            count = self.chance.choice((0, 1, 1, 2))
            return tuple(self._field(spec.element, version) for _ in range(count))
        if spec.struct is not None:
            return self._struct(spec.struct, version)
        if spec.name in _SHORT:
            return self.chance.choice(_SHORT[spec.name])
        return self._value(spec.kind)

    def _value(self, kind: str) -> Any:
        if kind in _BITS:
            most = (1 << (_BITS[kind] - 1)) - 1
            return self.chance.choice((0, 0, 1, 1, 2, -1, 5, min(most, 6000), most, -most - 1))
        choices: dict[str, tuple[Any, ...]] = {
            "bool": (False, True),
            "bytes": _BYTES,
            "float64": (0.0, 1.5),
            "records": _RECORDS,
            "string": _STRINGS,
            "uuid": self._ids,
        }
        return self.chance.choice(choices[kind])

    def spoilt(self, data: bytes) -> bytes:
        """Return the bytes with some flipped, cut or inserted, or replaced by a huge length."""
        out = bytearray(data)
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            at = self.chance.randrange(len(out) + 1)
            match self.chance.randrange(6):
                case 0:
                    out[at : at + 1] = self.chance.randbytes(1)
                case 1:
                    huge = self.chance.choice((-1, 2**31 - 1, -(2**31), 10**6))
                    out[at : at + 4] = layouts.pack(">i", huge)
                case 2:
                    out[at : at + 5] = b"\xff\xff\xff\xff\x07"
                case 3:
                    del out[at:]
                case 4:
                    del out[at : at + self.chance.randrange(1, 9)]
                case _:
                    out[at:at] = self.chance.randbytes(self.chance.randrange(1, 9))
        return bytes(out)

"""The source code of a Python function while it is being generated."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kohort.wire.codec import primitives
from kohort.wire.codec.schema import FieldSpec

# Kafka's fixed-width types as `struct` codes; adjacent ones are packed and unpacked together.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}


class Source:
    """Lines of a function and the objects they refer to.

    Attributes:
        version: Version of the message that the function is for.
        flexible: Whether that version has compact lengths and tagged fields (KIP-482).
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self._names: dict[str, object] = dict(vars(primitives))
        self._lines: list[str] = []
        self._depth = 0
        self._serial = 0

    def add(self, line: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends with a colon; lines added inside are indented."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return an unused name."""
        self._serial += 1
        return f"{prefix}_{self._serial}"

    def bind(self, thing: object, prefix: str) -> str:
        """Return a name by which the code can refer to `thing`."""
        name = self.fresh(prefix)
        self._names[name] = thing
        return name

    def function(self, name: str) -> object:
        """Compile the code, and return the function of this name that it defines."""
        exec(compile("\n".join(self._lines), f"<{name}>", "exec"), self._names)  # noqa: S102  # our own text: nothing from outside is in it
        return self._names[name]


def is_fixed(spec: FieldSpec) -> bool:
    """Return whether a field always takes the same number of bytes that `struct` can read."""
    return spec.kind in FIXED and not spec.array


def packer(specs: Iterable[FieldSpec]) -> struct.Struct:
    """Return the `struct` that packs and unpacks consecutive fixed-width fields."""
    return struct.Struct(">" + "".join(FIXED[spec.kind] for spec in specs))


def runs(specs: Iterable[FieldSpec]) -> list[list[FieldSpec]]:
    """Group the untagged fields: adjacent ones of fixed width together, every other one alone."""
    groups: list[list[FieldSpec]] = []
    for spec in specs:
        if not spec.present or spec.tag is not None:
            continue
        if groups and is_fixed(spec) and is_fixed(groups[-1][-1]):
            groups[-1].append(spec)
        else:
            groups.append([spec])
    return groups


def tagged(specs: Iterable[FieldSpec]) -> list[FieldSpec]:
    """Return the tagged fields, sorted by tag."""
    present = (spec for spec in specs if spec.present and spec.tag is not None)
    return sorted(present, key=lambda spec: spec.tag or 0)

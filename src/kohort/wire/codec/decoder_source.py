"""Generates the source of decoders: functions that read a message from bytes.

Decoders do not trust their input. A count is compared with the remaining bytes before anything is
allocated. A length that extends beyond the end is not detected where it is read: slices contain
only existing bytes, so whatever is read after it fails; and if it comes last, the returned position
is beyond the end, which the caller rejects.
"""

from __future__ import annotations

from kohort.wire.codec.schema import FieldSpec, Request, Struct, fields_of
from kohort.wire.codec.source import FIXED, Source, is_fixed, packer, runs, tagged


class DecoderSource(Source):
    """Source of `decode(data, at)` for one version of a message; it returns (value, end).

    With `views` the data is a memoryview, so that records need not be copied; otherwise it is
    bytes, from whose slices strings are created faster. The array elements of a request are
    counted.
    """

    def __init__(self, cls: type[Struct], version: int, flexible: bool, views: bool) -> None:
        super().__init__(version, flexible)
        self._views = views
        self._counts = issubclass(cls, Request) and _has_arrays(cls, version)
        with self.block("def decode(data, at):"):
            self.add("total = len(data)")
            if self._counts:
                self.add("room = MAX_ELEMENTS")
            self._struct(cls, "value")
            self.add("return value, at")

    def _struct(self, cls: type[Struct], target: str) -> None:
        specs = fields_of(cls, self.version)
        local = {spec.name: self.fresh(spec.name) for spec in specs if spec.present}
        for group in runs(specs):
            if is_fixed(group[0]):
                self._fixed(group, ", ".join(local[spec.name] for spec in group))
            else:
                self._field(group[0], local[group[0].name])
        if self.flexible:
            self._tags(tagged(specs), local)
        values = (
            f"{spec.name}={local.get(spec.name) or self.bind(spec.default, 'default')}"
            for spec in specs
        )
        self.add(f"{target} = {self.bind(cls, cls.__name__)}({', '.join(values)})")

    def _fixed(self, group: list[FieldSpec], targets: str) -> None:
        code = packer(group)
        self.add(f"{targets}, = {self.bind(code.unpack_from, 'unpack')}(data, at)")
        self.add(f"at += {code.size}")

    def _field(self, spec: FieldSpec, target: str) -> None:
        if spec.array:
            self._array(spec, target)
        elif spec.struct is not None:
            self._nested(spec, spec.struct, target)
        elif spec.kind in FIXED:
            self._fixed([spec], target)
        elif spec.kind == "uuid":
            self.add(f"{target} = read_uuid(data, at)")
            self.add("at += 16")
        else:
            self._text_or_bytes(spec, target)

    def _nested(self, spec: FieldSpec, cls: type[Struct], target: str) -> None:
        if not spec.nullable:
            self._struct(cls, target)
            return
        self.add(f"{target} = None")
        self.add("at += 1")
        # An int8, negative for null; in a tagged field an unsigned varint, 0 for null.
        present = "data[at - 1] < 0x80" if spec.tag is None else "data[at - 1]"
        with self.block(f"if {present}:"):
            self._struct(cls, target)

    def _length(self, spec: FieldSpec) -> None:
        """Read a length or count into `size`; negative means null."""
        if self.flexible:
            self.add("size = data[at] - 1")
            self.add("at += 1")
            with self.block("if size >= 0x7F:"):
                self.add("size, at = read_long_size(data, at - 1)")
        else:
            short = spec.kind == "string" and not spec.array
            self.add(f"size, = unpack_{'int16' if short else 'int32'}(data, at)")
            self.add(f"at += {2 if short else 4}")

    def _text_or_bytes(self, spec: FieldSpec, target: str) -> None:
        self._length(spec)
        if spec.nullable:
            with self.block("if size < 0:"):
                self.add(f"{target} = None")
            with self.block("else:"):
                self._slice(spec, target)
        else:
            self._slice(spec, target)

    def _slice(self, spec: FieldSpec, target: str) -> None:
        limit = "MAX_STRING" if spec.kind == "string" else "total"
        with self.block(f"if not 0 <= size <= {limit}:"):
            self.add("refuse_size(size)")
        self.add("end = at + size")
        self.add(f"{target} = {self._value_of_slice(spec)}")
        self.add("at = end")

    def _value_of_slice(self, spec: FieldSpec) -> str:
        if spec.kind == "string":
            return "str(data[at:end], 'utf-8')" if self._views else "data[at:end].decode()"
        return "bytes(data[at:end])" if self._views and spec.kind == "bytes" else "data[at:end]"

    def _array(self, spec: FieldSpec, target: str) -> None:
        self._length(spec)
        if spec.nullable:
            with self.block("if size < 0:"):
                self.add(f"{target} = None")
            with self.block("else:"):
                self._elements(spec, target)
        else:
            self._elements(spec, target)

    def _elements(self, spec: FieldSpec, target: str) -> None:
        smallest = _smallest(spec.element, self.version, self.flexible)
        with self.block(f"if not 0 <= size * {smallest} <= total - at:"):
            self.add("refuse_size(size)")
        if self._counts:
            self.add("room -= size")
            with self.block("if room < 0:"):
                self.add("refuse_elements()")
        if spec.kind in FIXED:
            self.add(f"{target} = unpack_from('>%d{FIXED[spec.kind]}' % size, data, at)")
            self.add(f"at += size * {smallest}")
            return
        items, item = self.fresh("items"), self.fresh("item")
        self.add(f"{items} = []")
        with self.block("for _ in range(size):"):
            self._field(spec.element, item)
            self.add(f"{items}.append({item})")
        self.add(f"{target} = tuple({items})")

    def _tags(self, known: list[FieldSpec], local: dict[str, str]) -> None:
        """Read the tagged fields: store the known ones, and skip the others."""
        for spec in known:
            self.add(f"{local[spec.name]} = {self.bind(spec.default, 'default')}")
        self.add("at += 1")
        with self.block("if data[at - 1]:"):
            if not known:
                self.add("at = skip_tags(data, at - 1)")
                return
            count, tag, end = self.fresh("count"), self.fresh("tag"), self.fresh("tag_end")
            self.add(f"{count}, at = read_tag_count(data, at - 1)")
            with self.block(f"for _ in range({count}):"):
                self.add(f"{tag}, {end}, at = read_tag(data, at)")
                for spec in known:
                    with self.block(f"if {tag} == {spec.tag}:"):
                        self._field(spec, local[spec.name])
                        self.add(f"check_tag_end({tag}, at, {end})")
                self.add(f"at = {end}")


def _has_arrays(cls: type[Struct], version: int) -> bool:
    return any(
        spec.array or (spec.struct is not None and _has_arrays(spec.struct, version))
        for spec in fields_of(cls, version)
    )


def _smallest(spec: FieldSpec, version: int, flexible: bool) -> int:
    """Return the minimum size of a field in bytes; at least 1, so that counts are bounded."""
    if is_fixed(spec):
        return packer([spec]).size
    if spec.array:
        return 1 if flexible else 4
    if spec.struct is not None:
        inner = fields_of(spec.struct, version)
        sizes = (_smallest(s, version, flexible) for s in inner if s.present and s.tag is None)
        return 1 if spec.nullable else max(1, sum(sizes) + flexible)
    if spec.kind == "uuid":
        return 16
    return 1 if flexible else 2 if spec.kind == "string" else 4

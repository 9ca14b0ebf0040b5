"""Generates the source of encoders: functions that append a message to a bytearray."""

from __future__ import annotations

from kohort.wire.codec.schema import FieldSpec, Struct, fields_of
from kohort.wire.codec.source import FIXED, Source, is_fixed, packer, runs, tagged


class EncoderSource(Source):
    """Source of `encode(value, out)` for one version of a message."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        with self.block("def encode(value, out):"):
            self.add("pass")  # a message may have no fields
            self._struct(cls, "value", "out")

    def _struct(self, cls: type[Struct], value: str, out: str) -> None:
        specs = fields_of(cls, self.version)
        for spec in specs:
            if not spec.present and not spec.ignorable:
                self._refuse_unless_default(cls, spec, value)
        for group in runs(specs):
            if is_fixed(group[0]):
                pack = self.bind(packer(group).pack, "pack")
                self.add(f"{out} += {pack}({', '.join(f'{value}.{s.name}' for s in group)})")
            else:
                self._field(group[0], f"{value}.{group[0].name}", out)
        if self.flexible:
            self._tags(specs, value, out)

    def _refuse_unless_default(self, cls: type[Struct], spec: FieldSpec, value: str) -> None:
        with self.block(f"if {self._differs(spec, value)}:"):
            self.add(f"refuse_field('{cls.__name__}.{spec.name}', {self.version})")

    def _differs(self, spec: FieldSpec, value: str) -> str:
        """Return the expression that tests whether a field differs from its default."""
        field = f"{value}.{spec.name}"
        if spec.default is None or isinstance(spec.default, (bool, int, str, bytes)):
            return f"{field} != {spec.default!r}"
        default = self.bind(spec.default, "default")
        # Usually it is the default object itself, and comparing values takes longer.
        return f"{field} is not {default} and {field} != {default}"

    def _field(self, spec: FieldSpec, value: str, out: str) -> None:
        local = self.fresh(spec.name)
        self.add(f"{local} = {value}")
        if not spec.nullable:
            self._content(spec, local, out)
            return
        with self.block(f"if {local} is None:"):
            self._null(spec, out)
        with self.block("else:"):
            self._content(spec, local, out)

    def _null(self, spec: FieldSpec, out: str) -> None:
        if self._is_plain_struct(spec):
            # An int8; in a tagged field an unsigned varint.
            self.add(f"{out} += b'\\xff'" if spec.tag is None else f"{out} += b'\\0'")
        elif self.flexible:
            self.add(f"{out}.append(0)")
        else:
            width = 2 if spec.kind == "string" and not spec.array else 4
            null = b"\xff" * width
            self.add(f"{out} += {null!r}")

    def _is_plain_struct(self, spec: FieldSpec) -> bool:
        return spec.struct is not None and not spec.array

    def _content(self, spec: FieldSpec, value: str, out: str) -> None:
        """Write a value that is not null."""
        if spec.array:
            self._array(spec, value, out)
        elif spec.struct is not None:
            if spec.nullable:
                self.add(f"{out} += b'\\x01'")
            self._struct(spec.struct, value, out)
        elif spec.kind in FIXED:
            self.add(f"{out} += {self.bind(packer([spec]).pack, 'pack')}({value})")
        elif spec.kind == "uuid":
            self.add(f"{out} += {value}.bytes")
        elif spec.kind == "string":
            self._string(value, out)
        else:
            self._length(f"len({value})", out, "pack_int32")
            self.add(f"{out} += {value}")

    def _string(self, value: str, out: str) -> None:
        self.add(f"text = {value}.encode()")
        self.add("size = len(text)")
        with self.block("if size > MAX_STRING:"):
            self.add("refuse_string(size)")
        self._length("size", out, "pack_int16")
        self.add(f"{out} += text")

    def _length(self, size: str, out: str, pack: str) -> None:
        if self.flexible:
            self.add(f"write_uvarint({out}, {size} + 1)")
        else:
            self.add(f"{out} += {pack}({size})")

    def _array(self, spec: FieldSpec, value: str, out: str) -> None:
        self._length(f"len({value})", out, "pack_int32")
        if spec.kind in FIXED:
            self.add(f"{out} += pack('>%d{FIXED[spec.kind]}' % len({value}), *{value})")
            return
        item = self.fresh("item")
        with self.block(f"for {item} in {value}:"):
            self._content(spec.element, item, out)

    def _tags(self, specs: tuple[FieldSpec, ...], value: str, out: str) -> None:
        """Write the tagged fields that differ from their defaults, sorted by tag."""
        known = tagged(specs)
        if not known:
            self.add(f"{out}.append(0)")
            return
        tags = self.fresh("tags")
        self.add(f"{tags} = []")
        for spec in known:
            with self.block(f"if {self._differs(spec, value)}:"):
                content = self.fresh("content")
                self.add(f"{content} = bytearray()")
                self._field(spec, f"{value}.{spec.name}", content)
                self.add(f"{tags}.append(({spec.tag}, {content}))")
        with self.block(f"if {tags}:"):
            self.add(f"write_tags({out}, {tags})")
        with self.block("else:"):
            self.add(f"{out}.append(0)")

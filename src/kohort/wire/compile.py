"""Compile a declared message, for one version, into an encoder and a decoder.

Each structure becomes one flat Python function, written as text and compiled once. The text is what
a person would write by hand for that version: neighbouring integers share one `struct` call, and no
field is looked up while a message is read or written.

Reading trusts nothing: a count is held against the bytes that remain before anything is allocated,
and every length before a slice is taken.
"""

from __future__ import annotations

import struct as struct_module
import uuid
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache
from typing import TypeAlias

from kohort.wire import primitives
from kohort.wire.schema import FieldSpec, Struct, fields_of

Encoder: TypeAlias = Callable[[Struct, bytearray], None]
Decoder: TypeAlias = Callable[[memoryview, int], tuple[Struct, int]]

# Kafka's fixed-width types as `struct` codes; runs of them are packed and unpacked together.
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


@cache
def encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """Return the function that appends a `cls` of this version to a bytearray."""
    writer = _EncoderText(cls, version, flexible)
    return _build(writer.text(), "encode", writer.names)


@cache
def decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    """Return the function that reads a `cls` of this version: (bytes, position) -> (value, end)."""
    reader = _DecoderText(cls, version, flexible)
    return _build(reader.text(), "decode", reader.names)


@cache
def smallest_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Return the fewest bytes a `cls` of this version can take; at least 1."""
    total = 1 if flexible else 0
    for spec in fields_of(cls, version):
        if spec.tag is None:
            total += _smallest_field(spec, version, flexible)
    return max(total, 1)


def _smallest_field(spec: FieldSpec, version: int, flexible: bool) -> int:
    if spec.array:
        return 1 if flexible else 4
    return _smallest_element(spec, version, flexible)


def _smallest_element(spec: FieldSpec, version: int, flexible: bool) -> int:
    if spec.struct is not None:
        return 1 if spec.nullable else smallest_size(spec.struct, version, flexible)
    if spec.kind in FIXED:
        return struct_module.calcsize(">" + FIXED[spec.kind])
    if spec.kind == "uuid":
        return 16
    return 1 if flexible else (2 if spec.kind == "string" else 4)


def _build(text: str, name: str, names: dict[str, object]) -> Callable[..., object]:  # type: ignore[explicit-any]  # what exec makes has no static type
    exec(compile(text, f"<{name}>", "exec"), names)  # noqa: S102  # our own text, no input in it
    return names[name]  # type: ignore[return-value]  # the function that the text defines


class _Text:
    """Lines of a function being written, and the objects its text refers to."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.names: dict[str, object] = dict(vars(primitives))
        self.names["cls"] = cls
        self.lines: list[str] = []
        self.specs = fields_of(cls, version)
        self._count = 0

    def name_of(self, thing: object, prefix: str) -> str:
        """Return a name under which the text can use `thing`."""
        self._count += 1
        name = f"{prefix}{self._count}"
        self.names[name] = thing
        return name

    def add(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def plain(self) -> list[list[FieldSpec]]:
        """Group the untagged fields: runs of fixed-width ones together, others alone."""
        groups: list[list[FieldSpec]] = []
        for spec in self.specs:
            if spec.tag is not None:
                continue
            if groups and _is_fixed(spec) and _is_fixed(groups[-1][-1]):
                groups[-1].append(spec)
            else:
                groups.append([spec])
        return groups

    def tagged(self) -> list[FieldSpec]:
        return sorted((s for s in self.specs if s.tag is not None), key=lambda s: s.tag or 0)

    def suffix(self, nullable: bool) -> str:
        """Return the ending of the primitive's name for this encoding of lengths."""
        return ("_compact" if self.flexible else "") + ("_nullable" if nullable else "")


def _is_fixed(spec: FieldSpec) -> bool:
    return spec.kind in FIXED and not spec.array


def _codes(group: list[FieldSpec]) -> struct_module.Struct:
    return struct_module.Struct(">" + "".join(FIXED[spec.kind] for spec in group))


class _EncoderText(_Text):
    def text(self) -> str:
        for group in self.plain():
            if _is_fixed(group[0]):
                pack = self.name_of(_codes(group).pack, "pack")
                self.add(f"out += {pack}({', '.join(f'value.{s.name}' for s in group)})")
            else:
                self.field(group[0], f"value.{group[0].name}", "out", 1)
        if self.flexible:
            self.tags()
        return "\n".join(["def encode(value, out):", *(self.lines or ["    pass"])])

    def field(self, spec: FieldSpec, value: str, out: str, depth: int) -> None:
        if spec.array:
            self.array(spec, value, out, depth)
        else:
            self.element(spec, value, out, depth)

    def array(self, spec: FieldSpec, value: str, out: str, depth: int) -> None:
        self.add(f"items = {value}", depth)
        self.add(f"write_count{self.suffix(spec.nullable)}({out}, items)", depth)
        if spec.kind in FIXED:
            code = FIXED[spec.kind]
            self.add("if items:", depth)
            self.add(f"{out} += pack_format('>%d{code}' % len(items), *items)", depth + 1)
            return
        self.add("for item in items or ():", depth)
        self.element(_element(spec), "item", out, depth + 1)

    def element(self, spec: FieldSpec, value: str, out: str, depth: int) -> None:
        if spec.struct is not None:
            name = self.name_of(encoder(spec.struct, self.version, self.flexible), "encode_")
            if spec.nullable:
                self.add(f"if write_presence({out}, {value}):", depth)
                depth += 1
            self.add(f"{name}({value}, {out})", depth)
        elif spec.kind in FIXED:
            pack = self.name_of(_codes([spec]).pack, "pack")
            self.add(f"{out} += {pack}({value})", depth)
        elif spec.kind == "uuid":
            self.add(f"{out} += {value}.bytes", depth)
        else:
            kind = "bytes" if spec.kind == "records" else spec.kind
            self.add(f"write_{kind}{self.suffix(spec.nullable)}({out}, {value})", depth)

    def tags(self) -> None:
        """Write the tagged fields that differ from their default, in the order of their tags."""
        if not self.tagged():
            self.add("out.append(0)")
            return
        self.add("tags = []")
        for spec in self.tagged():
            default = self.name_of(_absent_value(spec), "default")
            self.add(f"if value.{spec.name} != {default}:")
            self.add("tag = bytearray()", 2)
            self.field(spec, f"value.{spec.name}", "tag", 2)
            self.add(f"tags.append(({spec.tag}, tag))", 2)
        self.add("write_tags(out, tags)")


class _DecoderText(_Text):
    def text(self) -> str:
        for group in self.plain():
            if _is_fixed(group[0]):
                code = _codes(group)
                unpack = self.name_of(code.unpack_from, "unpack")
                targets = ", ".join(f"f_{s.name}" for s in group)
                self.add(f"{targets}, = {unpack}(data, at)")
                self.add(f"at += {code.size}")
            else:
                self.field(group[0], f"f_{group[0].name}", 1)
        if self.flexible:
            self.tags()
        arguments = ", ".join(f"{spec.name}=f_{spec.name}" for spec in self.specs)
        self.add(f"return cls({arguments}), at")
        return "\n".join(["def decode(data, at):", *self.lines])

    def field(self, spec: FieldSpec, target: str, depth: int) -> None:
        if spec.array:
            self.array(spec, target, depth)
        else:
            self.element(spec, target, depth)

    def array(self, spec: FieldSpec, target: str, depth: int) -> None:
        smallest = _smallest_element(_element(spec), self.version, self.flexible)
        suffix = self.suffix(spec.nullable)
        self.add(f"count, at = read_count{suffix}(data, at, {smallest})", depth)
        if spec.nullable:
            self.add(f"{target} = None", depth)
            self.add("if count >= 0:", depth)
            depth += 1
        if spec.kind in FIXED:
            code = FIXED[spec.kind]
            self.add(f"{target} = unpack_format('>%d{code}' % count, data, at)", depth)
            self.add(f"at += count * {smallest}", depth)
            return
        self.add("items = []", depth)
        self.add("for _ in range(count):", depth)
        self.element(_element(spec), "item", depth + 1)
        self.add("items.append(item)", depth + 1)
        self.add(f"{target} = tuple(items)", depth)

    def element(self, spec: FieldSpec, target: str, depth: int) -> None:
        if spec.struct is not None:
            name = self.name_of(decoder(spec.struct, self.version, self.flexible), "decode_")
            if spec.nullable:
                self.add(f"{target} = None", depth)
                self.add("present, at = read_presence(data, at)", depth)
                self.add("if present:", depth)
                depth += 1
            self.add(f"{target}, at = {name}(data, at)", depth)
        elif spec.kind in FIXED:
            code = _codes([spec])
            unpack = self.name_of(code.unpack_from, "unpack")
            self.add(f"{target}, = {unpack}(data, at)", depth)
            self.add(f"at += {code.size}", depth)
        else:
            suffix = "" if spec.kind == "uuid" else self.suffix(spec.nullable)
            self.add(f"{target}, at = read_{spec.kind}{suffix}(data, at)", depth)

    def tags(self) -> None:
        """Read the tagged fields: known ones into their fields, unknown ones are passed over."""
        for spec in self.tagged():
            default = self.name_of(_absent_value(spec), "default")
            self.add(f"f_{spec.name} = {default}")
        if not self.tagged():
            self.add("at = skip_tags(data, at)")
            return
        self.add("tag_count, at = read_tag_count(data, at)")
        self.add("for _ in range(tag_count):")
        self.add("tag, tag_end, at = read_tag(data, at)", 2)
        for spec in self.tagged():
            self.add(f"if tag == {spec.tag}:", 2)
            self.field(spec, f"f_{spec.name}", 3)
            self.add("check_tag_end(tag, at, tag_end)", 3)
        self.add("at = tag_end", 2)


def _element(spec: FieldSpec) -> FieldSpec:
    """Return what one element of an array field looks like; elements are never null."""
    return FieldSpec(
        name=spec.name,
        kind=spec.kind,
        struct=spec.struct,
        array=False,
        nullable=False,
        tag=None,
        default=MISSING,
    )


def _absent_value(spec: FieldSpec) -> object:
    """Return the value of a tagged field that was not sent."""
    if spec.default is not MISSING:
        return spec.default
    if spec.array:
        return ()
    implied: dict[str, object] = {
        "string": "",
        "bytes": b"",
        "bool": False,
        "uuid": uuid.UUID(int=0),
    }
    return implied.get(spec.kind, 0)

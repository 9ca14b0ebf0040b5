"""Reads the public names of kohort, and what their docstrings leave out."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from typing import TypeAlias

from msgspec import StructMeta

PACKAGES = (
    "kohort",
    "kohort.broker",
    "kohort.client",
    "kohort.group",
    "kohort.region",
    "kohort.spark",
    "kohort.streams",
    "kohort.testing",
)

# Classes whose methods are described by another one with the same methods.
TWINS = {
    "AdminClient": ("AsyncAdminClient",),
    "AsyncAdminClient": ("AdminClient",),
    "AsyncKafkaHarness": ("KafkaHarness",),
    "AsyncProducer": ("Producer",),
    "AsyncRegionConsumer": ("RegionConsumer",),
    "CallableSink": ("RegionSink", "SharedSink"),
    "Consumer": ("AsyncConsumer",),
    "DeltaSink": ("SharedSink",),
    "ParquetDirectory": ("SharedSink",),
    "Producer": ("AsyncProducer",),
    "SimulatedConsumer": ("Consumer", "AsyncConsumer"),
}

Described: TypeAlias = "type | Callable[..., object]"

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ITEM = re.compile(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):")


@cache
def public_names() -> dict[str, object]:
    """Return what the packages export, by the first full name of each object."""
    found: dict[int, tuple[str, object]] = {}
    for package in map(import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            found.setdefault(id(value), (f"{package.__name__}.{name}", value))
    return dict(found.values())


def described() -> Iterator[tuple[str, Described]]:
    """Yield classes, functions and public methods of kohort, each with its full name."""
    for name, value in public_names().items():
        if inspect.isclass(value):
            yield name, value
            for method, function in methods(value).items():
                yield f"{name}.{method}", function
        elif inspect.isfunction(value):
            yield name, value


def methods(kind: type) -> dict[str, Described]:
    """Return the public methods that a class defines itself; properties have no arguments."""
    found: dict[str, Described] = {}
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and inspect.isfunction(function):
            found[name] = function
    return found


# ------------------------------------------------------------------------------------ docstrings


def sections(value: Described) -> dict[str, list[str]]:
    """Return the names under each section of a docstring."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in (inspect.getdoc(value) or "").splitlines():
        if section := _SECTION.match(line):
            current = found.setdefault(section[1], [])
        elif line and not line.startswith(" "):
            current = None
        elif current is not None and (item := _ITEM.match(line)):
            current += [each.lstrip("*") for each in item[1].split(", ")]
    return found


def _arguments(value: Described) -> set[str]:
    """Return the arguments that a docstring describes, in a section or in backticks."""
    found = sections(value)
    inline = re.findall(r"`(\w+)`", inspect.getdoc(value) or "")
    return {*found.get("Args", ()), *found.get("Attributes", ()), *inline}


def _with_bases(value: Described) -> list[Described]:
    """Return a class with those that it extends, whose fields are its own; a function alone."""
    if not inspect.isclass(value):
        return [value]
    bases = [*value.__mro__[:-1], *getattr(value, "__orig_bases__", ())]
    return [value, *(each for base in bases if base is not value for each in _of_base(base))]


def _of_base(base: type) -> list[Described]:
    return _with_bases(base) if hasattr(base, "__orig_bases__") else [base]


def parameters(value: Described) -> list[str]:
    """Return the names of the arguments that a caller gives.

    A TypedDict has none here: tests/client/config/test_setting_types.py looks at those of settings.
    """
    if inspect.isclass(value) and (issubclass(value, Enum) or not _is_made(value)):
        return []
    if isinstance(value, StructMeta):
        return list(value.__struct_fields__)
    names = [*inspect.signature(value).parameters]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def _is_made(kind: type) -> bool:
    """Whether callers construct a class, by a constructor of its own or by fields."""
    is_protocol = getattr(kind, "_is_protocol", False)
    has_own = "__init__" in vars(kind) or hasattr(kind, "_fields") or isinstance(kind, StructMeta)
    return has_own and not is_protocol and not hasattr(kind, "__total__")


# -------------------------------------------------------------------------------- what is missing


def missing_parameters(name: str, value: Described) -> list[str]:
    """Return the arguments that no docstring describes: its own, its class's or its twin's."""
    known = {each for place in places(name, value) for each in _arguments(place)}
    return [each for each in parameters(value) if each not in known]


def places(name: str, value: Described) -> Iterator[Described]:
    """Yield everything whose docstring may describe the arguments of a class or a function."""
    yield from _with_bases(value)
    if inspect.isclass(value) and inspect.isfunction(value.__init__):
        yield value.__init__
    owner = value if inspect.isclass(value) else public_names().get(name.rpartition(".")[0])
    if not inspect.isclass(owner):
        return
    for kind in (*owner.__mro__[:-1], *_twins(owner)):
        yield kind
        method = getattr(kind, name.rpartition(".")[2], None)
        if method is not None:
            yield method


def _twins(kind: type) -> Iterator[type]:
    by_name = {each.rpartition(".")[2]: value for each, value in public_names().items()}
    by_name["SharedSink"] = import_module("kohort.region.sinks.sink").SharedSink
    for twin in TWINS.get(kind.__name__, ()):
        found = by_name[twin]
        assert inspect.isclass(found)
        yield found


def raised(value: Described) -> list[str]:
    """Return the names of the errors that a function, or a constructor, raises itself."""
    function = vars(value).get("__init__") if inspect.isclass(value) else value
    if getattr(value, "_is_protocol", False) or not inspect.isfunction(function):
        return []
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return sorted({name for node in ast.walk(tree) if (name := _raised_name(node))})


def _raised_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
        return ""
    name = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ""
    return name if name.endswith("Error") else ""


def missing_errors(value: Described) -> list[str]:
    """Return the errors that a function raises itself and its docstring does not name."""
    known = sections(value).get("Raises", [])
    if inspect.isclass(value):
        known += sections(value.__init__).get("Raises", [])
    return [name for name in raised(value) if name not in known]

"""What is done with values, which are structs of msgspec: they are copied, and asked for defaults.

Why structs and not dataclasses: docs/decisions/0029-values-of-our-own.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import NODEFAULT, Struct

if TYPE_CHECKING:
    # Does the same; and of this one the type checker compares names and types with the fields.
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["defaults", "replace"]


def defaults(cls: type[Struct]) -> dict[str, object]:
    """Return what the fields of a class are by default, in order of declaration.

    `msgspec.structs.fields` says more; it evaluates all annotations, which takes far longer.

    Args:
        cls: A class without defaults that are made for each value.

    Returns:
        The default of each field by its name, `msgspec.NODEFAULT` where there is none.
    """
    names, known = cls.__struct_fields__, cls.__struct_defaults__
    required = [NODEFAULT] * (len(names) - len(known))
    return dict(zip(names, (*required, *known), strict=True))

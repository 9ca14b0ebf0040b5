"""Operations on values, which are msgspec structs: copies with changes, and default values.

docs/decisions/0029-values-of-our-own.md explains why they are not dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import NODEFAULT, Struct

if TYPE_CHECKING:
    # Does the same; the type checker compares the names and types of its arguments with the fields.
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["defaults", "replace"]


def defaults(cls: type[Struct]) -> dict[str, object]:
    """Return the default values of a class's fields, in order of declaration.

    `msgspec.structs.fields` returns more, but evaluates all annotations, which takes far longer.

    Args:
        cls: A class without default factories.

    Returns:
        The default of each field by name, `msgspec.NODEFAULT` if there is none.
    """
    names, known = cls.__struct_fields__, cls.__struct_defaults__
    required = [NODEFAULT] * (len(names) - len(known))
    return dict(zip(names, (*required, *known), strict=True))

"""Write values as TOML, one value a line; the standard library only reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeAlias, Union

Value: TypeAlias = Union[str, int, bool, "list[Value]", "dict[str, Value]"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render(value: Value) -> str:
    """Return a value as it stands behind the `=` of a line; equal values give equal text."""
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, list):
        return f"[{', '.join(render(element) for element in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _table(table: Mapping[str, Value]) -> str:
    entries = ", ".join(f"{_key(key)} = {render(value)}" for key, value in table.items())
    return f"{{ {entries} }}" if entries else "{}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)

from typing import TypeAlias, TypeVar

from immutables import Map

_K = TypeVar("_K", bound=tuple[str, ...])
Node: TypeAlias = tuple[int, tuple[str, ...], int, Node | None, Node | None]

def merge(a: Node | None, b: Node | None) -> Node | None: ...
def settle(
    due: Map[_K, tuple[int, int]], heap: Node | None
) -> tuple[Map[_K, tuple[int, int]], Node | None]: ...

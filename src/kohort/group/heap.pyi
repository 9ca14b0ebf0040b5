from typing import TypeAlias, TypeVar

from immutables import Map

_K = TypeVar("_K", bound=tuple[str, ...])
_Due: TypeAlias = Map[_K, tuple[int, int]]
Node: TypeAlias = tuple[int, tuple[str, ...], int, Node | None, Node | None]

def put(due: _Due[_K], heap: Node | None, key: _K, at: int) -> tuple[_Due[_K], Node | None]: ...
def drop(due: _Due[_K], heap: Node | None, key: _K) -> tuple[_Due[_K], Node | None]: ...

# The type checker knows what these may do, and what is different here is nothing it looks at.
from dataclasses import dataclass as dataclass
from dataclasses import replace as replace
from typing import Generic, TypeVar

_T = TypeVar("_T")

def defaults(cls: type) -> dict[str, object]: ...

class Maker(Generic[_T]):
    def __init__(self, cls: type[_T]) -> None: ...
    def __call__(self, *given: object) -> _T: ...

from array import array
from collections.abc import Collection, Sequence

from kohort.types import TopicPartition

def read_wanted(
    wanted: Sequence[frozenset[str]], numbers: dict[str, int]
) -> tuple[array[int], array[int]]: ...
def turned(
    which: array[int], start: array[int], value: array[int], values: int
) -> tuple[array[int], array[int]]: ...
def read_owned(
    first: int,
    owned: Sequence[Collection[TopicPartition]],
    wish_of: array[int],
    wanted_start: array[int],
    wanted: array[int],
    numbers: dict[str, int],
    starts: array[int],
    wanted_by: array[int],
    owner: array[int],
    claimed: array[int],
    pairs: list[TopicPartition | None],
) -> bool: ...
def count_owned(
    owner: array[int],
    class_of: array[int],
    row_of_class: array[int],
    row_start: array[int],
    row_member: array[int],
    members: int,
) -> array[int]: ...
def place(
    owner: array[int],
    class_of: array[int],
    row_of_class: array[int],
    row_start: array[int],
    row_member: array[int],
    owned: array[int],
    carried: array[int],
    members: int,
) -> array[int]: ...
def withhold(owner: array[int], claimed: array[int], given: array[int]) -> None: ...
def add_pairs(
    lists: list[list[TopicPartition]],
    given: array[int],
    topic: str,
    start: int,
    integers: list[int],
    pairs: list[TopicPartition | None],
) -> None: ...

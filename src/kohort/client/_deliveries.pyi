from typing import TypeAlias

from kohort.client.delivery import Completable, RecordMetadata
from kohort.errors import KohortError

Watcher: TypeAlias = tuple[Delivery, Completable]

class Fate:
    def __init__(self, topic: str, partition: int) -> None: ...
    @property
    def is_settled(self) -> bool: ...
    def delivered(self, base_offset: int, append_time: int) -> list[Watcher]: ...
    def failed(
        self, error: KohortError, reasons: dict[int, KohortError] | None = None
    ) -> list[Watcher]: ...
    def divide(self, parts: list[tuple[int, Fate]]) -> None: ...

class Delivery:
    is_watched: bool
    def outcome(self) -> RecordMetadata | KohortError | None: ...
    def watch(self, future: Completable) -> bool: ...
    def adopt(
        self,
        own: dict[str, object],
        state: dict[str, object],
        settled: bool,
        future: Completable,
    ) -> bool: ...

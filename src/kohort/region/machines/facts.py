"""Facts observed while a log was folded or a machine decided, for logs, metrics and people."""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True):
    """Something that happened.

    Attributes:
        offset: Offset of the record; -1 outside of the log.
        rule: Its name; for a refusal, the rule that the record broke.
        text: One sentence for people.
        is_refused: Whether a record was ignored because of it.
        is_usual: Whether a healthy region refuses such records now and then.
        is_warning: Whether it needs attention: work was lost and has to be repeated.
    """

    offset: int
    rule: str
    text: str
    is_refused: bool = False
    is_usual: bool = False
    is_warning: bool = False

"""What was observed while a log was folded or a machine decided, for logs, metrics and people."""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True):
    """Something that happened.

    Attributes:
        offset: Offset of the record; -1 outside of the log.
        rule: What it is called; for a refusal the rule that the record broke.
        text: One sentence for people.
        is_refused: Whether a record was passed over because of it.
        is_usual: Whether a region that works refuses such records now and then.
        is_warning: Whether somebody should look at it: what was done has to be done again.
    """

    offset: int
    rule: str
    text: str
    is_refused: bool = False
    is_usual: bool = False
    is_warning: bool = False

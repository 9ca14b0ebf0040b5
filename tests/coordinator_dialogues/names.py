"""The names of one dialogue: what a placeholder stands for, and which one stands for a value.

Brokers make member ids and topic ids of their own. In the data files they are `${a}` (the first id
that client a got), `${a.2}` (its second), `${topic.id}`.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")
NULL = "${null}"
_MADE_ID = re.compile(
    r"(?P<prefix>.*-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
# What Kafka itself makes of a UUID where it writes one as text.
_MADE_BY_KAFKA = re.compile(r"[\w-]{22}")

Known = str | int | uuid.UUID | None


@dataclass
class Standing:
    """What one client knows of its membership, as a real client would."""

    member_id: str = ""
    generation: int = -1
    epoch: int = 0


@dataclass
class Names:
    """All placeholders of one dialogue."""

    slug: str
    values: dict[str, Known] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Every dialogue has a group of its own; other groups are `${group}` and a suffix."""
        self.values |= {"null": None, "group": f"{self.slug}:"}

    def standing(self, client: str) -> Standing:
        return self.standings.setdefault(client, Standing())

    # ---------------------------------------------------------------------------- to the wire

    def resolve(self, text: str, client: str) -> Known:
        """Replace placeholders; a text that is one placeholder becomes its value as it is."""
        whole = PLACEHOLDER.fullmatch(text)
        if whole:
            return self._value(whole[1], client)
        return PLACEHOLDER.sub(lambda found: str(self._value(found[1], client)), text)

    def _value(self, name: str, client: str) -> Known:
        mine = self.standing(client)
        own: dict[str, Known] = {
            "me": mine.member_id,
            "name": client,
            "id": mine.member_id or client,
            "generation": mine.generation,
            "epoch": mine.epoch,
        }
        if name in own:
            return own[name]
        if name not in self.values:
            raise KeyError(f"nothing is known as ${{{name}}} in {self.slug}")
        return self.values[name]

    # -------------------------------------------------------------------------- from the wire

    def learn_member(self, client: str, member_id: str) -> None:
        """Remember an id that a broker made for a client, by the client's name."""
        self.standing(client).member_id = member_id
        made = _MADE_ID.fullmatch(member_id) or _MADE_BY_KAFKA.fullmatch(member_id)
        if member_id in self.values.values() or not made:
            return
        count = sum(1 for name in self.values if name.partition(".")[0] == client)
        self.values[client if not count else f"{client}.{count + 1}"] = member_id

    def show(self, value: str | uuid.UUID) -> str:
        """Return the placeholder of a value that a broker made, any other as it is."""
        for name, known in self.values.items():
            if known == value and type(known) is type(value):
                return f"${{{name}}}"
        text = str(value)
        if text.startswith(str(self.values["group"])):
            return "${group}" + text.removeprefix(str(self.values["group"]))
        made = _MADE_ID.fullmatch(text)
        return f"{made['prefix'] or ''}<uuid>" if made else text

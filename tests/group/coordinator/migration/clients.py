"""Three applications that use one of the two protocols, and switch between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.errors import ErrorCode
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.dialogue import MixedDialogue, partitions_in

NAMES = ("east", "north", "south")
PARTITIONS = 4


@dataclass
class Client:
    """An application.

    Attributes:
        name: Its name, and its member id as a consumer.
        classic: Whether it uses the classic protocol; it then revokes everything before it joins.
        member_id: Its member id, empty if it has none.
        epoch: Its member epoch or generation, 0 before it has joined.
        held: The partitions that it believes to own.
        waits_for: Token of a parked join or sync.
        is_joined: Whether it is a classic member that has yet to ask for its assignment.
        leads: The members that it assigns partitions to.
    """

    name: str
    classic: bool = True
    member_id: str = ""
    epoch: int = 0
    held: set[int] = field(default_factory=set)
    waits_for: int = 0
    is_joined: bool = False
    leads: tuple[str, ...] = ()

    def start_anew(self) -> None:
        """Reset the membership."""
        self.member_id, self.epoch, self.held = "", 0, set()
        self.waits_for, self.is_joined, self.leads = 0, False, ()


class MovingClients:
    """Three applications and their coordinator."""

    def __init__(self) -> None:
        self.group = MixedDialogue(group_initial_rebalance_delay_ms=0)
        self.clients = {name: Client(name) for name in NAMES}

    def do(self, action: str, name: str) -> None:
        """Have an application act, let time pass, or move the shard."""
        client = self.clients[name]
        match action:
            case "work":
                self.work(client)
            case "change":
                self.leave(client)
                client.classic = not client.classic
            case "leave":
                self.leave(client)
            case "wait":
                self.group.advance(2_000)
            case "reload":
                self.reload()

    def reload(self) -> None:
        """Move the shard; parked requests are answered by the old one."""
        self.group.reload()
        for client in self.clients.values():
            self.receive(client)

    def leave(self, client: Client) -> None:
        """Leave the group."""
        if client.member_id and client.classic:
            self.group.leave((client.member_id, None))
        elif client.epoch:
            self.group.heartbeat(client.member_id, -1)
        client.start_anew()

    def work(self, client: Client) -> None:
        """Take the next step of the protocol."""
        if not client.classic:
            self.beat_as_consumer(client)
        elif client.waits_for:
            self.receive(client)
        elif client.is_joined:
            self.sync(client)
        elif client.epoch:
            self.beat(client)
        else:
            self.join(client)

    # ------------------------------------------------------------------------------ consumers

    def beat_as_consumer(self, client: Client) -> None:
        client.member_id = client.name
        full = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("t",)}
        if client.epoch == 0:
            client.held = set()
        held = {"t": client.held} if client.held else {}
        answer = self.group.heartbeat(client.name, client.epoch, held=held, **full)
        if answer.error_code != ErrorCode.NONE:
            client.start_anew()
            return
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.held = (self.group.told(answer) or {}).get("t", set())

    # -------------------------------------------------------------------------------- classic

    def join(self, client: Client) -> None:
        client.held = set()
        client.waits_for = self.group.join_classic(client.member_id, client_id=client.name)
        self.receive(client)

    def sync(self, client: Client) -> None:
        given = {
            member_id: self.group.assignment(range(at, PARTITIONS, len(client.leads)))
            for at, member_id in enumerate(client.leads)
        }
        client.waits_for = self.group.sync_token(
            client.member_id,
            client.epoch,
            given,
            protocol_type="consumer",
            protocol_name="range",
        )
        self.receive(client)

    def beat(self, client: Client) -> None:
        self.take_error(client, self.group.beat(client.member_id, client.epoch))

    def receive(self, client: Client) -> None:
        """Process the response to a parked request, if it exists."""
        answer = self.group.answers.get(client.waits_for)
        if answer is None:
            return
        client.waits_for = 0
        if answer.error_code != ErrorCode.NONE:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            self.take_error(client, answer.error_code)
        elif client.is_joined:
            client.held = set(partitions_in(answer.assignment))
            client.is_joined, client.leads = False, ()
        else:
            client.member_id, client.epoch = answer.member_id, answer.generation_id
            client.is_joined = True
            client.leads = tuple(each.member_id for each in answer.members)

    def take_error(self, client: Client, code: int) -> None:
        """Join again; an unknown member, or one of another generation, loses its partitions."""
        if code == ErrorCode.NONE:
            return
        member_id = client.member_id
        client.start_anew()
        if code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE):
            client.member_id = member_id

    # -------------------------------------------------------------------------------- state

    def known(self) -> set[str]:
        """Return the members that the coordinator knows."""
        shard = self.group.shard
        consumers = shard.log.consumer_groups.get(GROUP)
        if consumers is not None:
            return set(consumers.members)
        return set(shard.session.group(shard.log, GROUP).members)

    def nobody_shares_a_partition(self) -> None:
        known = self.known()
        owned = [
            number
            for client in self.clients.values()
            if client.member_id in known
            for number in client.held
        ]
        assert len(owned) == len(set(owned)), self.clients

    def settle(self) -> None:
        """Have all applications work until nothing is left to do."""
        for _ in range(40):
            for client in self.clients.values():
                self.work(client)
                self.nobody_shares_a_partition()
            self.group.advance(500)

    def everything_is_read(self) -> bool:
        owned = [number for client in self.clients.values() for number in client.held]
        return sorted(owned) == list(range(PARTITIONS))

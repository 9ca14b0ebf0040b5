"""`kohort groups`: commands that change a group, refused while members would undo the change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kohort.cli.command_config import CommandConfig
from kohort.cli.group_views import named
from kohort.cli.reset_specs import parse_topic
from kohort.cli.shared import (
    AsJson,
    Bootstrap,
    admin_client,
    ended,
    failures,
    print_json,
    print_table,
    tell,
    wrong_usage,
)
from kohort.errors import ConfigError, ErrorCode, KafkaError
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupDescription

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Group id.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:N,N]", help="All partitions or only these; repeatable."
    ),
]
_WHY = "a group with members is not deleted"
Chosen: TypeAlias = dict[str, tuple[int, ...] | None]


def chosen_topics(topics: Sequence[str]) -> Chosen:
    """Return the partitions of each topic in `--topic`, None for all of them."""
    found: Chosen = {}
    for text in topics:
        try:
            name, numbers = parse_topic(text)
        except ValueError as error:
            raise wrong_usage(f"--topic: {error}") from None
        before = found.get(name, ())
        found[name] = None if before is None or numbers is None else (*before, *numbers)
    return found


def partitions_of(admin: AdminClient, topics: Chosen) -> list[TopicPartition]:
    """Return the partitions that `--topic` names.

    Raises:
        KafkaError: A topic does not exist.
    """
    every = [name for name, numbers in topics.items() if numbers is None]
    described = admin.describe_topics(every) if every else {}
    return [
        TopicPartition(name, number)
        for name, numbers in topics.items()
        for number in (
            dict.fromkeys(numbers)
            if numbers is not None
            else [each.partition for each in described[name]]
        )
    ]


def _members(admin: AdminClient, group: str) -> GroupDescription | None:
    """Return a group with members; None if it has none or does not exist."""
    try:
        found = admin.describe_groups([group])[group]
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    return found if found.members else None


def refuse_members(admin: AdminClient, group: str, *, execute: bool) -> None:
    """Refuse a change that members would undo; a preview is allowed."""
    found = _members(admin, group)
    if found is None:
        return
    text = _refusal(found, "only they may change its offsets")
    if execute:
        raise ConfigError(text)
    tell(f"{text}; until then --execute will be refused")


def _refusal(found: GroupDescription, why: str) -> str:
    count = len(found.members)
    return (
        f"group {found.group_id} is {found.state} and has {count} member(s), and {why}:"
        f" stop {named(found.members)}. A crashed member counts until its session ends, or until"
        " kohort groups remove-members removes it"
    )


def delete_offsets(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:N,N]", help="All its partitions; repeatable."
        ),
    ],
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete a group's committed offsets of topics to which no member subscribes.

    Exit code 0: all are deleted, or did not exist; 1: some were not, with the reason.

    Example: kohort groups delete-offsets delays -b localhost:9092 --topic flights:0,1
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        wanted = partitions_of(admin, chosen_topics(topic))
        errors = failures(lambda: admin.delete_group_offsets(wanted, group))
        subscribed = {each.topic for each in wanted if each in errors}
        found = _members(admin, group) if subscribed else None
    if as_json:
        rows = [
            {"topic": at[0], "partition": at[1], "error": _text(errors.get(at))} for at in wanted
        ]
        print_json({"group": group, "partitions": rows})
    else:
        status = [(*at, _text(errors.get(at)) or "Successful") for at in wanted]
        print_table(("TOPIC", "PARTITION", "STATUS"), status)
    if found is not None:
        those = [each for each in found.members if each.topics & subscribed or each.pattern]
        tell(f"stop the members that subscribe to {', '.join(sorted(subscribed))}: {named(those)}")
    ended(1 if errors else 0)


def _text(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)


def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Group ids.")],
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, with their committed offsets.

    Exit code 0: all are deleted; 1: some were not, with the reason.

    Example: kohort groups delete delays -b localhost:9092
    """
    failed: dict[str, str] = {}
    names = list(dict.fromkeys(groups))
    with admin_client(bootstrap_servers, command_config) as admin:
        for group, why in failures(lambda: admin.delete_groups(names)).items():
            found = _members(admin, str(group))
            failed[str(group)] = _refusal(found, _WHY) if found else str(why)
    deleted = [each for each in names if each not in failed]
    if as_json:
        print_json({"deleted": deleted, "failed": failed})
    else:
        for group in deleted:
            typer.echo(f"group {group} was deleted")
        for group, text in failed.items():
            tell(f"group {group} was not deleted: {text}")
    ended(1 if failed else 0)


def remove_members(
    group: GroupName,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    instance_id: Annotated[
        list[str] | None,
        typer.Option("--instance-id", help="group.instance.id of a static member; repeatable."),
    ] = None,
    member_id: Annotated[
        list[str] | None, typer.Option("--member-id", help="Member id; repeatable.")
    ] = None,
    all_members: Annotated[bool, typer.Option("--all", help="All members.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Reason, for the broker's log.")] = "",
    as_json: AsJson = False,
) -> None:
    """Remove members from a group; their partitions go to the others.

    A member that is still running rejoins as soon as it notices: stop it first.

    Exit code 0: all are removed; 1: some were not, with the reason.

    Example: kohort groups remove-members delays -b localhost:9092 --instance-id worker-7
    """
    if bool(instance_id or member_id) == all_members:
        raise wrong_usage("name the members: --instance-id ID, --member-id ID, or --all")
    with admin_client(bootstrap_servers, command_config) as admin:
        described = admin.describe_groups([group])[group]
        wanted = _wanted(described, instance_id or (), member_id or ())
        failed = failures(lambda: admin.remove_group_members(group, wanted, reason))
    removed = [each for each in wanted if each not in failed]
    if as_json:
        errors = {str(each): str(why) for each, why in failed.items()}
        print_json({"group": group, "removed": removed, "failed": errors})
    else:
        typer.echo("\n".join(f"{each} was removed" for each in removed) or "no member was removed")
        for each, why in failed.items():
            tell(f"{each} was not removed: {why}")
    ended(1 if failed else 0)


def _wanted(
    described: GroupDescription, instance_ids: Sequence[str], member_ids: Sequence[str]
) -> list[str]:
    """Return ids of members; all of them if none is named.

    Raises:
        ConfigError: One is not a member.
    """
    by_instance = {m.group_instance_id: m.member_id for m in described.members}
    known = {member.member_id for member in described.members}
    missing = [each for each in instance_ids if each not in by_instance]
    missing += [each for each in member_ids if each not in known]
    if missing:
        have = named(described.members) or "none"
        raise ConfigError(
            f"group {described.group_id} has no member {', '.join(missing)}; its members: {have}"
        )
    if not instance_ids and not member_ids:
        return sorted(known)
    return list(dict.fromkeys([*(by_instance[each] for each in instance_ids), *member_ids]))

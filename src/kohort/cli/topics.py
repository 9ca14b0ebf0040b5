"""`kohort topics`: show, create, change and delete topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kohort.cli.command_config import CommandConfig
from kohort.cli.shared import (
    AsJson,
    Bootstrap,
    admin_client,
    console,
    ended,
    failures,
    print_json,
    print_table,
    printable,
    tell,
    wrong_usage,
)
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import AdminClient, ConfigEntry
    from kohort.client.admin.values import ConfigChange
    from kohort.client.net.metadata import PartitionMetadata

app = typer.Typer(help="Show, create, change and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topic names.")]
Settings = list[str] | None
_PAIR = "NAME=VALUE"
_EARLIEST, _LATEST = -2, -1


@app.command("list")
def list_topics(
    bootstrap_servers: Bootstrap, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """List topics with their partitions and replicas, except Kafka's internal ones.

    Example: kohort topics list -b localhost:9092
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        found = _described(admin, sorted(admin.list_topics()))
    rows = [(name, len(parts), _factor(parts)) for name, parts in sorted(found.items())]
    if as_json:
        names = ("topic", "partitions", "replication_factor")
        print_json({"topics": [dict(zip(names, row, strict=True)) for row in rows]})
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "REPLICATION-FACTOR"), rows)
    else:
        typer.echo("no topics")


def _described(
    admin: AdminClient, names: Sequence[str]
) -> dict[str, tuple[PartitionMetadata, ...]]:
    return admin.describe_topics(names) if names else {}


def _factor(partitions: Sequence[PartitionMetadata]) -> int:
    return max((len(each.replicas) for each in partitions), default=0)


@app.command()
def describe(
    topics: Names,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show partitions: leader, replicas, those in sync, first and next offset; and settings.

    Example: kohort topics describe flights -b localhost:9092
    """
    names = list(dict.fromkeys(topics))
    with admin_client(bootstrap_servers, command_config) as admin:
        found = _described(admin, names)
        led = [
            TopicPartition(name, each.partition)
            for name in names
            for each in found[name]
            if each.leader >= 0  # only the leader knows its offsets
        ]
        begins, ends = (
            admin.list_offsets(dict.fromkeys(led, target)) if led else {}
            for target in (_EARLIEST, _LATEST)
        )
        configs = {name: _changed(_entries(admin, name)) for name in names}
    shown = {name: _rows(name, found[name], begins, ends) for name in names}
    if as_json:
        print_json({"topics": [_as_dict(name, shown[name], configs[name]) for name in names]})
        return
    for number, name in enumerate(names):
        if number:
            typer.echo()
        console().print(Text(_headline(name, found[name], configs[name])))
        print_table(_COLUMNS, [_cells(row) for row in shown[name]], ["REPLICAS", "ISR"])


_COLUMNS = ("PARTITION", "LEADER", "REPLICAS", "ISR", "BEGIN-OFFSET", "END-OFFSET")


def _rows(
    name: str,
    partitions: Sequence[PartitionMetadata],
    begins: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int | None],
) -> list[dict[str, object]]:
    return [
        {
            "partition": each.partition,
            "leader": each.leader if each.leader >= 0 else None,
            "replicas": list(each.replicas),
            "isr": list(each.in_sync_replicas),
            "begin_offset": begins.get(TopicPartition(name, each.partition)),
            "end_offset": ends.get(TopicPartition(name, each.partition)),
        }
        for each in partitions
    ]


def _cells(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(
        ",".join(map(str, value)) if isinstance(value, list) else value for value in row.values()
    )


def _headline(
    name: str, partitions: Sequence[PartitionMetadata], configs: Mapping[str, str | None]
) -> str:
    settings = ",".join(f"{key}={value}" for key, value in configs.items())
    return printable(
        f"TOPIC {name}  PARTITIONS {len(partitions)}  REPLICATION-FACTOR {_factor(partitions)}"
        f"  CONFIGS {settings or '-'}"
    )


def _as_dict(
    name: str, rows: Sequence[Mapping[str, object]], configs: Mapping[str, str | None]
) -> dict[str, object]:
    return {"topic": name, "configs": dict(configs), "partitions": list(rows)}


def _entries(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    from kohort.client import ConfigResource

    resource = ConfigResource("topic", topic)
    return admin.describe_configs([resource])[resource]


def _changed(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Return the settings of the topic itself."""
    return {
        name: each.value for name, each in sorted(entries.items()) if each.source == "dynamic_topic"
    }


@app.command()
def create(
    topics: Names,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Number of partitions; default: the broker's."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, help="Number of replicas; default: the broker's."
        ),
    ] = None,
    config: Annotated[
        Settings, typer.Option("--config", metavar=_PAIR, help="Topic setting; repeatable.")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Ignore topics that already exist.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create topics.

    Example: kohort topics create flights -b localhost:9092 --partitions 8
    --config cleanup.policy=compact
    """
    from kohort.client import NewTopic
    from kohort.client.admin.values import BROKER_DEFAULT

    configs = dict(_pairs(config or (), "--config"))
    counts = (partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT)
    names = list(dict.fromkeys(topics))
    with admin_client(bootstrap_servers, command_config) as admin:
        errors = failures(
            lambda: admin.create_topics([NewTopic(each, *counts, configs) for each in names])
        )
    passed = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
    _finish(names, errors, "created", passed, as_json)


@app.command()
def alter(
    topic: Name,
    bootstrap_servers: Bootstrap,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", min=1, help="New number of partitions, above the current one."
        ),
    ],
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic; keys may then map to other partitions.

    Use `kohort topics configs` to change settings. To change the number of replicas, use Kafka's
    kafka-reassign-partitions.

    Example: kohort topics alter flights -b localhost:9092 --partitions 16
    """
    with admin_client(bootstrap_servers, command_config) as admin:
        errors = failures(lambda: admin.create_partitions({topic: partitions}))
    _finish([topic], errors, f"given {partitions} partitions", None, as_json)


@app.command()
def delete(
    topics: Names,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and their records permanently.

    Example: kohort topics delete flights -b localhost:9092
    """
    names = list(dict.fromkeys(topics))
    with admin_client(bootstrap_servers, command_config) as admin:
        errors = failures(lambda: admin.delete_topics(names))
    passed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    _finish(names, errors, "deleted", passed, as_json)


def _finish(
    names: Sequence[str],
    errors: Mapping[object, KafkaError],
    what: str,
    passed: ErrorCode | None,
    as_json: bool,
) -> None:
    """Report the result for each topic; exit code 1 if any failed."""
    failed = {name: errors[name] for name in names if name in errors}
    wrong = {name: str(error) for name, error in failed.items() if error.code != passed}
    done = [name for name in names if name not in failed]
    if as_json:
        print_json({"done": done, "failed": wrong})
    else:
        for name in names:
            if name in wrong:
                tell(f"topic {name} was not {what}: {wrong[name]}")
            else:
                reason = f": {failed[name].name}" if name in failed else ""
                typer.echo(f"topic {name} was {'not ' * bool(reason)}{what}{reason}")
    ended(1 if wrong else 0)


@app.command()
def configs(
    topic: Name,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    set_: Annotated[
        Settings, typer.Option("--set", metavar=_PAIR, help="Set a value; repeatable.")
    ] = None,
    delete_: Annotated[
        Settings, typer.Option("--delete", metavar="NAME", help="Restore the default; repeatable.")
    ] = None,
    append: Annotated[
        Settings, typer.Option("--append", metavar=_PAIR, help="Add to a list; repeatable.")
    ] = None,
    subtract: Annotated[
        Settings, typer.Option("--subtract", metavar=_PAIR, help="Remove from a list; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only have the broker check the changes.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show defaults too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a topic's settings, or change some of them; the others stay unchanged.

    Example: kohort topics configs flights -b localhost:9092 --set retention.ms=3600000
    """
    changes = _changes(set_ or (), delete_ or (), append or (), subtract or ())
    with admin_client(bootstrap_servers, command_config) as admin:
        if changes:
            _alter(admin, topic, changes, dry_run=dry_run)
        entries = {} if changes else _entries(admin, topic)
    if not changes:
        _show_configs(topic, entries, every=every, as_json=as_json)
    elif as_json:
        print_json({"topic": topic, "changed": sorted(changes), "is_done": not dry_run})
    else:
        what = "can be changed" if dry_run else "changed"
        typer.echo(f"topic {topic}: {what}: {', '.join(sorted(changes))}")


def _show_configs(
    topic: str, entries: Mapping[str, ConfigEntry], *, every: bool, as_json: bool
) -> None:
    shown = [
        (name, None if each.is_sensitive else each.value, each.source)
        for name, each in sorted(entries.items())
        if every or each.source == "dynamic_topic"
    ]
    if as_json:
        names = ("name", "value", "source")
        rows = [dict(zip(names, row, strict=True)) for row in shown]
        print_json({"topic": topic, "configs": rows})
    elif shown:
        print_table(("NAME", "VALUE", "SOURCE"), [(n, str(v), s) for n, v, s in shown], ["SOURCE"])
    else:
        typer.echo("this topic has no settings of its own; --all shows its defaults")


def _changes(
    set_: Sequence[str], delete_: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> dict[str, ConfigChange]:
    found: dict[str, ConfigChange] = dict.fromkeys(delete_)
    found |= dict(_pairs(set_, "--set"))
    found |= {name: ("append", value) for name, value in _pairs(append, "--append")}
    found |= {name: ("subtract", value) for name, value in _pairs(subtract, "--subtract")}
    if len(found) != len(set_) + len(delete_) + len(append) + len(subtract):
        raise wrong_usage("a setting is changed twice")
    return found


def _alter(
    admin: AdminClient, topic: str, changes: Mapping[str, ConfigChange], *, dry_run: bool
) -> None:
    from kohort.client import ConfigResource

    resource = ConfigResource("topic", topic)
    admin.alter_configs({resource: changes}, validate_only=dry_run)


def _pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for name, found, value in pairs:
        if not found or not name:
            raise wrong_usage(f"{option} {name}{found}{value}: must be NAME=VALUE")
    return [(name, value) for name, _, value in pairs]

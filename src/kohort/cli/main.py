"""The `kohort` command: its options, and how its errors look.

Each command imports what it needs when it runs, so that `kohort --help` is quick and the broker
process never loads a library that only the client needs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli import groups, simulate, spark
from kohort.demo.settings import GroupProtocol
from kohort.errors import KohortError

app = typer.Typer(
    name="kohort",
    help="Kafka consumer groups for Python and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(groups.app, name="groups")
app.add_typer(spark.app, name="spark")
app.command()(simulate.simulate)

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT"),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kohort {version('kohort')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Kafka consumer groups for Python and Spark."""


@app.command()
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Three plain Python consumers: 25 s, no Java.")
    ] = False,
    sabotage: Annotated[
        bool,
        typer.Option("--sabotage", help="Commit before the sink has written: must exit with 1."),
    ] = False,
    group_protocol: Annotated[
        GroupProtocol,
        typer.Option(help="How the group shares its partitions: all stop, or only what moves."),
    ] = GroupProtocol.CLASSIC,
    bootstrap_servers: Bootstrap = None,
    out: Annotated[Path, typer.Option(help="Folder for everything it leaves.")] = Path("demo-out"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, no panel.")] = False,
) -> None:
    """Replay the flights of 2013 through one group of three applications, and judge the result.

    An application joins, one is killed, another joins; at the end the table they wrote together
    must hold every flight exactly once. Exit code 0 when it does, 1 when anything is wrong.

    Without --bootstrap-servers an embedded broker is started; with it, a topic and a group are
    created on your Kafka and deleted at the end. With the consumer protocol (Kafka 4.0) the session
    of the application that is killed lasts as long as that broker has it (45 s by default).
    """
    from kohort.demo.run import run
    from kohort.demo.settings import DemoSettings

    settings = DemoSettings(
        out=out,
        quick=quick,
        sabotage=sabotage,
        bootstrap_servers=bootstrap_servers,
        as_json=as_json,
        group_protocol=group_protocol,
    )
    raise typer.Exit(run(settings))


@app.command()
def broker(
    data: Annotated[Path, typer.Option(help="Data directory; made if missing.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option(help="Permit an address that other machines reach; there is no security."),
    ] = False,
    advertised: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Address that clients are told to connect to; by default what is listened on, or"
            " this machine's name.",
        ),
    ] = None,
    flush_interval_ms: Annotated[
        int | None, typer.Option(min=1, help="fsync this often; by default never.")
    ] = None,
    protocols: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Group protocols; draft is there to be studied."),
    ] = "classic,consumer",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, by Kafka's name."),
    ] = None,
) -> None:
    """Run a single-node Kafka-compatible broker for tests and demos, until Ctrl-C."""
    # A process of its own rather than a call: typer and rich stay out of the broker's memory.
    command = [sys.executable, "-m", "kohort.broker", "--data", str(data)]
    command += ["--port", str(port), "--host", host, "--protocols", protocols]
    command += ["--allow-remote"] if allow_remote else []
    command += [] if advertised is None else ["--advertised", advertised]
    if flush_interval_ms is not None:
        command += ["--flush-interval-ms", str(flush_interval_ms)]
    for setting in settings or []:
        command += ["--set", setting]
    os.execv(sys.executable, command)  # noqa: S606  # replaces this process, no shell


def main() -> None:
    """Run the command; an expected error is one line on standard error and exit code 1."""
    logging.getLogger("kohort").addHandler(logging.NullHandler())  # a command says it itself
    try:
        app()
    except (KohortError, ValueError, TypeError) as error:  # the latter: an argument of a client
        if "--json" in sys.argv:
            sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        sys.stderr.write(f"kohort: {error}\n")
        sys.exit(1)

"""The `kohort` command: its options and its error messages.

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

from kohort.cli import consume, groups, produce, region, simulate, spark, streams, topics
from kohort.demo.settings import GroupProtocol
from kohort.errors import KohortError
from kohort.extras import check_packages
from kohort.output import failure_of_out, silence_out

app = typer.Typer(
    name="kohort",
    help="Kafka consumer groups for Python and Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # this mode joins the lines of a paragraph
)
app.add_typer(groups.app, name="groups")
app.add_typer(topics.app, name="topics")
app.add_typer(spark.app, name="spark")
app.add_typer(region.app, name="region")
app.add_typer(streams.app, name="streams")
app.command()(produce.produce)
app.command()(consume.consume)
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
        bool, typer.Option("--quick", help="Three plain Python applications: 25 s, no Java.")
    ] = False,
    region: Annotated[
        bool,
        typer.Option(
            "--region/--no-region",
            help="One consistent region, with every snapshot checked; or only a group, where"
            " each application appends and commits independently.",
        ),
    ] = True,
    sabotage: Annotated[
        bool,
        typer.Option(
            "--sabotage",
            help="Without a region, commit before the sink has written: must exit with 1.",
        ),
    ] = False,
    group_protocol: Annotated[
        GroupProtocol,
        typer.Option(help="Group protocol: all members stop, or only moving partitions."),
    ] = GroupProtocol.CLASSIC,
    bootstrap_servers: Bootstrap = None,
    out: Annotated[Path, typer.Option(help="Folder for all output.")] = Path("demo-out"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the panel.")
    ] = False,
) -> None:
    """Replay the flights of 2013 through three applications of one region, and judge the result.

    An application joins, one is killed, another joins, while a reader checks that every version of
    the table is a consistent cut; at the end the table they wrote together must hold every flight
    exactly once. Exit code 0 when it does, 1 when anything is wrong.

    Without --bootstrap-servers an embedded broker is started; with it, a topic and a group are
    created on your Kafka and deleted at the end. With the consumer protocol (Kafka 4.0) the session
    of the application that is killed lasts as long as that broker has it (45 s by default).
    """
    from kohort.demo.settings import PACKAGES, DemoSettings

    check_packages("kohort demo", "demo", [*PACKAGES, *([] if quick else ["pyspark"])])
    from kohort.demo.run import run

    settings = DemoSettings(
        out=out,
        region=region and not sabotage,
        quick=quick,
        sabotage=sabotage,
        bootstrap_servers=bootstrap_servers,
        as_json=as_json,
        group_protocol=group_protocol,
    )
    raise typer.Exit(run(settings))


_FaultsFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Inject the faults in this TOML file (docs/testing.md)."),
]
_SecurityFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Require TLS or passwords as set in this TOML file (docs/broker.md)."
    ),
]
_ClientFiles = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder for client settings, written for each user."),
]


@app.command()
def broker(
    data: Annotated[Path, typer.Option(help="Data directory; created if missing.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 chooses a free port.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option(
            help="Allow an address that other machines can reach, without authentication."
        ),
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
        int | None, typer.Option(min=1, help="Interval of fsync; by default never.")
    ] = None,
    protocols: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Group protocols; draft is for study only."),
    ] = "classic,consumer",
    faults: _FaultsFile = None,
    security: _SecurityFile = None,
    client_files: _ClientFiles = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, by Kafka's name."),
    ] = None,
) -> None:
    """Run a single-node Kafka-compatible broker for tests and demos, until Ctrl-C."""
    # A separate process rather than a call: keeps typer and rich out of the broker's memory.
    command = [sys.executable, "-m", "kohort.broker", "--data", str(data)]
    command += ["--port", str(port), "--host", host, "--protocols", protocols]
    command += ["--allow-remote"] if allow_remote else []
    given = {
        "--advertised": advertised,
        "--flush-interval-ms": flush_interval_ms,
        "--faults": faults,
        "--security": security,
        "--client-files": client_files,
    }
    for name, value in given.items():
        command += [] if value is None else [name, str(value)]
    for setting in settings or []:
        command += ["--set", setting]
    os.execv(sys.executable, command)  # noqa: S606  # replaces this process, no shell


def main() -> None:
    """Run the command; an expected error is one line on standard error and exit code 1."""
    logging.getLogger("kohort").addHandler(logging.NullHandler())  # commands handle it themselves
    try:
        _run()
    except OSError:  # raised by standard output; any other is raised again
        error = failure_of_out()
        if error is None:
            raise
        silence_out()
        typer.echo(f"kohort: standard output cannot be written: {error.strerror}", err=True)
        sys.exit(1)


def _run() -> None:
    try:
        app()
    except (KohortError, ValueError, TypeError) as error:  # the latter: an argument of a client
        typer.echo(f"kohort: {error}", err=True)
        if "--json" in sys.argv:
            typer.echo(json.dumps({"error": str(error)}))
        sys.exit(1)


if __name__ == "__main__":
    main()

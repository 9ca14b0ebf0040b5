"""`kohort groups`: look at the groups of any Kafka cluster."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List and describe consumer groups.", no_args_is_help=True)

Bootstrap = Annotated[
    str, typer.Option("--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]

"""`--command-config`: settings of a command's clients, including security, from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kohort.errors import ConfigError

CommandConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file with the client's other settings, such as security.protocol.",
    ),
]


# As in `java.util.Properties`: the name ends at the first of these that is not escaped.
_BLANK = " \t\f"
_SEPARATED = re.compile(
    rf"((?:\\.|[^\\=:{_BLANK}])*)[{_BLANK}]*(?:[=:]|[{_BLANK}])[{_BLANK}]*(.*)", re.DOTALL
)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# Settings in files that other programs read too; Kafka's own commands warn and continue.
_OF_OTHERS = ("schema.registry.", "basic.auth.", "bearer.auth.")
_MEANT = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_command_config(path: Path | None) -> dict[str, str]:
    """Return the settings of a properties file, by Kafka's own names.

    Args:
        path: The file, in the format of Java's clients: one `name=value` per line; a backslash at
            the end continues a line, and elsewhere escapes the next character; None for no
            settings. Settings of a schema registry are skipped with a warning.

    Raises:
        ConfigError: It cannot be read, or a line is malformed. The error shows no text of the file,
            which may contain secrets.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--command-config {path}: {why}") from None
    settings: dict[str, str] = {}
    for number, line in _lines(text):
        found = _SEPARATED.fullmatch(line)
        if found is None:
            raise ConfigError(f"--command-config {path}, line {number}: not name=value")
        name, value = (_ESCAPED.sub(_unescaped, part) for part in found.groups())
        if name.startswith(_OF_OTHERS):
            what = f"{name} is a setting of another program and has no effect"
            typer.echo(f"kohort: warning: {path}, line {number}: {what}", err=True)
            continue
        # as in Java, trailing blanks belong to a password
        settings[name] = value if "password" in name else value.rstrip(_BLANK)
    return settings


def _unescaped(found: re.Match[str]) -> str:
    what = found[1]
    return chr(int(what[1:], 16)) if len(what) == 5 else _MEANT.get(what, what)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines without comments, with the number of their first line."""
    begun, whole = 0, ""
    for number, line in enumerate(re.split(r"\r\n?|\n", text), 1):
        part = line.lstrip(_BLANK)
        if not whole and (not part or part.startswith(("#", "!"))):
            continue
        begun = begun or number
        goes_on = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        whole += part.removesuffix("\\") if goes_on else part
        if not goes_on:
            yield begun, whole
            begun, whole = 0, ""
    if whole:
        yield begun, whole

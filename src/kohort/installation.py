"""Check early that the compiled extension modules are installed.

Spark ships files from `--py-files` and `addPyFile` as archives, from which Python cannot import
extension modules. Without this check, the error would name an unfamiliar module.
"""

from __future__ import annotations

from importlib.util import find_spec

from kohort.errors import KohortError

# Any one of them; finding this one loads nothing else.
EXTENSION = "kohort.group.assignors._border"


class InstallationError(KohortError, ImportError):
    """The package is installed in a way that Python cannot load completely."""


def check_installation() -> None:
    """Check that the extension modules can be imported.

    Raises:
        InstallationError: They cannot; the message says why and what works instead.
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

"""Import the public names of packages on first use.

Imports are lazy so that a restarted member rejoins sooner, a broker needs no library of the client,
and Spark's workers start fast. A public name must not be the name of a submodule of its package:
the import of the submodule would take its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module


def importer(
    package: str,
    public: Collection[str],
    homes: Mapping[str, str],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562).

    Args:
        package: Its name.
        public: Its public names (`__all__`), which completion offers, with its loaded subpackages.
        homes: The module of each lazy name; a module of the package itself begins with a dot.
        around: Makes a context for each import, for example one that explains missing packages.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with around():
            module = import_module(homes[name], package)
        value: object = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        known = vars(sys.modules[package]).items()
        also = {name for name, value in known if name[:2] == "__" or hasattr(value, "__path__")}
        return sorted({*public, *also})

    return load, names

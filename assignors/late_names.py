"""The names of a package that are imported when they are first asked for.

It is here because the packages above this one have such names too, and may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def late_names(
    package: str,
    places: Mapping[str, str],
    explain: Callable[[ImportError, str], ImportError] | None = None,
) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    Parameters
    ----------
    places
        Where each public name is: a module, followed by `:name` if it has another name there. A
        name that the module does not have is that of a module in it.
    explain
        Makes the error of an import that fails, for the name that was asked for.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = places[name].partition(":")
        there = there or name
        try:
            found = getattr(import_module(module), there, None)
            return import_module(f"{module}.{there}") if found is None else found
        except ImportError as error:
            if explain is None:
                raise
            raise explain(error, f"{package}.{name}") from None

    return find

"""The solvers of scipy that assignors call, imported when the first one is called.

Most groups need none of them, and scipy is half the time in which a command starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignors.late_names import late_names

if TYPE_CHECKING:
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import (
        breadth_first_order,
        connected_components,
        dijkstra,
        maximum_flow,
    )

__all__ = [
    "breadth_first_order",
    "connected_components",
    "coo_array",
    "csr_array",
    "dijkstra",
    "linear_sum_assignment",
    "maximum_flow",
]

_MODULES = {
    "breadth_first_order": "scipy.sparse.csgraph",
    "connected_components": "scipy.sparse.csgraph",
    "coo_array": "scipy.sparse",
    "csr_array": "scipy.sparse",
    "dijkstra": "scipy.sparse.csgraph",
    "linear_sum_assignment": "scipy.optimize",
    "maximum_flow": "scipy.sparse.csgraph",
}

__getattr__ = late_names(__name__, _MODULES)

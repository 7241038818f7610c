"""Leave out of an image what no server loads: `python deploy/trim.py SITE_PACKAGES`.

The tests of libraries, and parts of libraries that are never imported here. A test builds the image
by the steps of the Dockerfile, then imports every module of Muster there and serves with it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {
    "*": ("tests", "*.pyx", "*.pxd", "*.pyi"),
    "pyarrow": (
        "include", "src", "includes",  # to compile against
        "libarrow_flight.*", "libarrow_python_flight.*", "_flight.*",  # Flight, over gRPC
        "libarrow_s3.*", "_s3fs.*", "_gcsfs.*", "_azurefs.*", "_hdfs.*",  # obstore reads stores
        "libarrow_python.so", "libarrow_python.so.*.*.*",  # the same file as libarrow_python.so.*
        "libarrow_python_parquet_encryption.so", "libarrow_python_parquet_encryption.so.*.*.*",
        "_pyarrow_cpp_tests.*",
    ),
    "scipy": (  # of which graphs, sparse arrays and optimize are used
        "cluster", "datasets", "differentiate", "fftpack", "integrate", "interpolate", "io", "misc",
        "ndimage", "odr", "signal", "stats",
    ),
}  # fmt: skip
"""By package, what is left out of it; `*` is of every folder of every package."""


def find_left_out(site: Path) -> Iterator[Path]:
    """Yield the files and folders that are left out."""
    for package, patterns in LEFT_OUT.items():
        for pattern in patterns:
            yield from site.rglob(pattern) if package == "*" else (site / package).glob(pattern)


def main() -> None:
    """Remove them."""
    for found in sorted(set(find_left_out(Path(sys.argv[1])))):
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)


if __name__ == "__main__":
    main()

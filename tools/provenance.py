"""Where the files of a release come from: a statement of in-toto, in the words of SLSA.

It names the commit, what the build was given with its sums, and the sums of the files. It is not
signed: who publishes a release signs it with the sums (docs/design/release.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "make release"


def make_provenance(
    files: Iterable[Path], commit: str, made_at: int, root: Path, given: Sequence[str]
) -> dict[str, Any]:
    """Return the statement.

    Parameters
    ----------
    commit, made_at
        What was built, and its time in seconds since 1970, which all files bear.
    root, given
        The clone, and the files in it that pin what the build fetches.
    """
    at = datetime.fromtimestamp(made_at, UTC).isoformat().replace("+00:00", "Z")
    fetched = [{"name": name, "digest": digest_of(root / name)} for name in given]
    return {
        "_type": STATEMENT,
        "subject": [{"name": one.name, "digest": digest_of(one)} for one in files],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"SOURCE_DATE_EPOCH": made_at},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *fetched,
                ],
            },
            "runDetails": {"builder": {"id": BUILD}, "metadata": {"startedOn": at}},
        },
    }


def digest_of(file: Path) -> dict[str, str]:
    """Return the sum of a file."""
    return {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def write_provenance(statement: dict[str, Any], file: Path) -> Path:
    """Write a statement; the same one always has the same bytes."""
    file.write_text(json.dumps(statement, indent=1, sort_keys=True) + "\n")
    return file

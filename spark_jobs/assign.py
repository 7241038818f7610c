"""The spark-submit entry point: `spark-submit … spark_jobs/assign.py --members … --output …`.

It takes the options of `muster assign`. The engine is Spark unless --engine names another.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> None:
    """Run `muster assign` under spark-submit."""
    # Python puts a script's folder first on the path, where ours would hide other modules.
    here = str(Path(__file__).resolve().parent)
    os.environ.setdefault("RUST_LOG", "error")  # as `muster` does
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(here)]
    try:
        import typer  # noqa: PLC0415

        from coordinator.cli.main import run_guarded  # noqa: PLC0415
        from spark_jobs.cli.assign import assign  # noqa: PLC0415
    except ImportError as error:
        _in_own_environment(str(error))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name="assign")(assign)
    if not any(word == "--engine" or word.startswith("--engine=") for word in sys.argv[1:]):
        sys.argv += ["--engine", "spark"]
    run_guarded(app)


def _in_own_environment(missing: str) -> NoReturn:
    """Restart with the project's interpreter: spark-submit uses the first python3 on the path."""
    own = Path(__file__).resolve().parent.parent / ".venv" / "bin" / "python"
    if own.exists() and Path(sys.prefix).resolve() != own.parent.parent.resolve():
        os.execv(own, [str(own), *sys.argv])  # noqa: S606 - our own interpreter
    sys.exit(f"muster: {missing}: set PYSPARK_PYTHON to the interpreter that has Muster")


if __name__ == "__main__":
    main()

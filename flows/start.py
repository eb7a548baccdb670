"""The installed command ``astra``: says what is missing where only the core was installed."""

import sys

NEEDED = ("typer", "pandas", "dvc", "mlflow", "prefect", "great_expectations")
"""Packages of the extra ``ops``, by the names under which they are imported."""


def main() -> None:
    """Runs the command line, if the pipeline's packages are there."""
    from astra_core.errors import ConfigurationError
    from astra_core.errors.packages import require_package

    try:
        for name in NEEDED:
            require_package(name, subject="astra", extra="ops")
    except ConfigurationError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from flows.cli import main as run

    run()

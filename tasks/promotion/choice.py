"""How a person chooses the version that the gate decides about."""

from typing import TYPE_CHECKING

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from tasks.promotion.decision import DECISIONS
from tasks.tracking.registry.registered import has_version
from tasks.tracking.registry.versions import CANDIDATE, set_alias
from tasks.tracking.store import alone_with, connect, project_root, store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient


def make_candidate(model_name: str, version: str, *, client: "MlflowClient | None" = None) -> None:
    """Moves the alias ``candidate`` to the version, which the next decision is then about.

    Raises:
        ConfigurationError: The registry has no such version; the alias stays where it is.
        TrackingError: The registry did not answer.
    """
    with store_errors():
        client = client or connect()
        with alone_with(project_root() / DECISIONS):
            if not version.isdigit() or not has_version(client, model_name, version):
                msg = (
                    f"--version must be the number of a version of '{model_name}', got "
                    f"{excerpt(version)}; 'astra history' lists them"
                )
                raise ConfigurationError(msg)
            set_alias(client, model_name, CANDIDATE, version=version)

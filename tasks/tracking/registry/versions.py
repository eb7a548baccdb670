"""The model registry: each checkpoint becomes one version, and aliases give versions a role.

Everything is created together with the key by which it is looked up, so that a repetition after a
kill finds it instead of making a second one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from astra_core.files import file_digest, read_json, record_digest
from astra_core.models.folders import AGENTS, attacker_digest
from tasks.machine.scratch import scratch_folder
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.provenance import requirements
from tasks.tracking.registry.registered import aliases_if_there, aliases_in
from tasks.tracking.store import quiet_pyfunc

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion

CANDIDATE = "candidate"
CHAMPION = "champion"
PREVIOUS = "previous"

MODEL_KEY_TAG = "astra.model_key"
REGISTRATION_KEY_TAG = "astra.registration_key"
EVALUATION_KEY_TAG = "astra.evaluation_key"
CHECKPOINT_DIGEST_TAG = "astra.checkpoint_digest"
CHECKPOINT = "checkpoint"
ABOUT = "Red-team attackers. Restricted: see the card of each version."

_SERVING_CODE = Path(__file__).parents[2] / "serving" / "attacker_pyfunc.py"
_REQUIREMENTS = ("mlflow", "torch", "transformers", "tokenizers", "safetensors", "pandas")
# Parameters that a caller of the served model may set; their defaults come from system.probe.
_CALL_PARAMS = ("max_new_tokens", "temperature", "top_p", "top_k", "seed")


@dataclass(frozen=True, slots=True)
class Package:
    """A checkpoint with what its serving code needs.

    ``config``: ``separator``, ``max_context_tokens`` and the sampling defaults.
    """

    checkpoint: Path
    digest: str
    config: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A key that is equal for packages that behave the same."""
        return record_digest([self.digest, file_digest(_SERVING_CODE), dict(self.config)])


def log_package(
    client: "MlflowClient", run: "Run", package: Package, *, name: str
) -> "LoggedModel":
    """The logged model of the package in the run's experiment, created or completed if needed."""
    experiment = run.info.experiment_id
    model = _find_logged_model(client, experiment, package.key)
    if model is None:
        model = client.create_logged_model(
            experiment,
            name=name,
            source_run_id=run.info.run_id,
            tags={MODEL_KEY_TAG: package.key, CHECKPOINT_DIGEST_TAG: package.digest},
        )
    if not _is_complete(client, model):
        with scratch_folder() as folder:
            _save_package(package, run, model, folder=folder / "model")
            client.log_model_artifacts(model.model_id, str(folder / "model"))
        model = client.finalize_logged_model(model.model_id, "READY")
    _link(client, run.info.run_id, model.model_id)
    return model


def ensure_version(
    client: "MlflowClient",
    name: str,
    model: "LoggedModel",
    *,
    run_id: str,
    tags: Mapping[str, str],
    description: str,
    about: str = ABOUT,
) -> "ModelVersion":
    """The version with this registration key, created if there is none.

    Args:
        name: The name of the registered model, which is created if there is none.
        tags: The version's tags, ``REGISTRATION_KEY_TAG`` among them.
        about: Describes the registered model if it is created.
    """
    found = find_version(client, name, tags[REGISTRATION_KEY_TAG])
    if found is not None:
        return found
    _ensure_registered_model(client, name, about)
    # MLflow would resolve a models:/ address by its global tracking address, which we never set.
    is_remote = client.tracking_uri.startswith(("http://", "https://"))
    source = f"models:/{model.model_id}" if is_remote else model.artifact_location
    return client.create_model_version(
        name,
        source,
        run_id=run_id,
        tags=dict(tags),
        description=description,
        model_id=model.model_id,
    )


def find_version(client: "MlflowClient", name: str, registration_key: str) -> "ModelVersion | None":
    """The oldest version with this registration key, or None."""
    wanted = f"name = '{name}' and tags.`{REGISTRATION_KEY_TAG}` = '{registration_key}'"
    versions = client.search_model_versions(wanted)
    return min(versions, key=lambda version: int(version.version), default=None)


def aliases_of(client: "MlflowClient", name: str) -> dict[str, str]:
    """Version by alias. Raises TrackingError if there is no such model."""
    aliases = aliases_if_there(client, name)
    if aliases is None:
        msg = f"registered model '{name}' must exist, got none; run the stage registration first"
        raise TrackingError(msg)
    return aliases


def set_alias(client: "MlflowClient", name: str, alias: str, *, version: str) -> None:
    """Gives the alias to the version; an alias that it has already is not written again."""
    if aliases_in(client, name).get(alias) != version:
        client.set_registered_model_alias(name, alias, version)


@contextmanager
def version_folder(client: "MlflowClient", version: "ModelVersion") -> Iterator[Path]:
    """Yields the version's files in a local folder, fetched temporarily if they are remote."""
    import mlflow.artifacts

    address = client.get_model_version_download_uri(version.name, version.version)
    if not urlparse(address).scheme:
        if not Path(address).is_dir():
            msg = (
                f"version {version.version} of '{version.name}' must have its files in "
                f"'{address}', got no such folder; restore it, or register the checkpoint again"
            )
            raise TrackingError(msg)
        yield Path(address)
        return
    with scratch_folder() as folder:
        fetched = mlflow.artifacts.download_artifacts(
            artifact_uri=address, dst_path=str(folder), tracking_uri=client.tracking_uri
        )
        yield Path(fetched)


@contextmanager
def checkpoint_folder(client: "MlflowClient", version: "ModelVersion") -> Iterator[Path]:
    """Yields the Hugging Face folder inside a version, as in ``stored_package``."""
    with stored_package(client, version) as package:
        yield package.checkpoint


@contextmanager
def stored_package(client: "MlflowClient", version: "ModelVersion") -> Iterator[Package]:
    """Yields what was registered as a version; nothing of it has been loaded or run.

    Raises TrackingError if its files are gone, or are not those that were registered.
    """
    from mlflow.models import Model

    with version_folder(client, version) as folder:
        flavor = Model.load(str(folder)).flavors["python_function"]
        checkpoint = folder / str(flavor["artifacts"][CHECKPOINT]["path"])
        digest = attacker_digest(checkpoint)
        is_inside = checkpoint.resolve().is_relative_to(folder.resolve())
        if not is_inside or {digest} != _registered_digests(version):
            msg = (
                f"version {version.version} of '{version.name}' must have the weights that were "
                f"registered, got others ({digest[:12]}); restore its files, or name another"
            )
            raise TrackingError(msg)
        yield Package(checkpoint, digest, dict(flavor.get("config") or {}))


def _registered_digests(version: "ModelVersion") -> set[str]:
    """The digest in the version's tags and, if it is this project's own, that in the receipt."""
    told = {str(version.tags.get(CHECKPOINT_DIGEST_TAG, ""))}
    if RECEIPT.is_file():
        receipt = read_record(RECEIPT, RegistrationReceipt)
        if (receipt.model_name, receipt.version) == (version.name, str(version.version)):
            told.add(receipt.checkpoint_digest)
    return told


def _find_logged_model(client: "MlflowClient", experiment: str, key: str) -> "LoggedModel | None":
    wanted = f"tags.`{MODEL_KEY_TAG}` = '{key}'"
    oldest_first = [{"field_name": "creation_timestamp", "ascending": True}]
    models = client.search_logged_models([experiment], wanted, order_by=oldest_first)
    return models[0] if models else None


def _is_complete(client: "MlflowClient", model: "LoggedModel") -> bool:
    """Whether the upload is complete; the status alone would miss files that were deleted since."""
    if str(model.status) != "READY":
        return False
    return "MLmodel" in {file.path for file in client.list_logged_model_artifacts(model.model_id)}


def _save_package(package: Package, run: "Run", model: "LoggedModel", *, folder: Path) -> None:
    import warnings

    from mlflow.models import Model, infer_signature

    pyfunc = quiet_pyfunc()
    defaults = {"seed": 0} | {key: package.config[key] for key in _CALL_PARAMS[:-1]}
    if (agents := package.checkpoint / AGENTS).is_file():
        defaults["agent"] = read_json(agents)["roles"][0]
    with warnings.catch_warnings():
        # MLflow asks for an input example, which would generate a text while saving.
        warnings.simplefilter("ignore")
        pyfunc.save_model(
            str(folder),
            python_model=str(_SERVING_CODE),
            artifacts={CHECKPOINT: str(package.checkpoint)},
            pip_requirements=requirements(*_REQUIREMENTS),
            signature=infer_signature(["context"], ["probe"], params=defaults),
            model_config=dict(package.config),
            mlflow_model=Model(
                artifact_path=model.artifact_location,
                run_id=run.info.run_id,
                model_uuid=model.model_id,
                model_id=model.model_id,
            ),
        )
    _forget_places(folder)


def _forget_places(folder: Path) -> None:
    """Removes this machine's folders from what is uploaded; MLflow looks beside the file."""
    from mlflow.models import Model

    written = Model.load(str(folder))
    written.artifact_path = CHECKPOINT
    function = written.flavors["python_function"]
    function["model_code_path"] = Path(str(function["model_code_path"])).name
    written.save(str(folder / "MLmodel"))


def _link(client: "MlflowClient", run_id: str, model_id: str) -> None:
    """Records the model as an output of the run, once."""
    from mlflow.entities import LoggedModelOutput

    outputs = client.get_run(run_id).outputs
    known = {output.model_id for output in outputs.model_outputs} if outputs else set()
    if model_id not in known:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])


def _ensure_registered_model(client: "MlflowClient", name: str, about: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=about)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise

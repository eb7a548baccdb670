"""``python -m tasks.reevaluation``: the champion examined on prompts it has never met.

Not a stage: DVC versions what a run of the pipeline makes, this looks at what is in service. The
fresh prompts come from the builtin grammar under another seed, or from a file, pass the same
validation, and those that are in the current training split are left out.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.files import record_digest, write_json
from astra_core.rollout import Prompt
from tasks import failures
from tasks.console import complain, quiet_libraries, say
from tasks.environment import set_environment
from tasks.params import Params, check_params, read_params
from tasks.parents import end_group_with_parent
from tasks.precision import advise
from tasks.prompts import SPLITS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

NAME = "reevaluation"
FOLDER = Path(".astra/reevaluation")
# Split by ten and thinned by validation, so many are made for one that is wanted.
SURPLUS = 2
MIN_BUILTIN = 400


@dataclass(frozen=True, slots=True)
class Reevaluation:
    """How the champion does today.

    Attributes:
        model_name: The registered model.
        version: The champion; None while there is none, and then the rest is empty.
        num_prompts: Fresh prompts it was examined on.
        success_rate: Attack success today: ``value``, ``low`` and ``high``.
        registered: The same when it was registered.
        run_id: The MLflow run that records it.
    """

    model_name: str
    version: str | None = None
    num_prompts: int = 0
    success_rate: dict[str, float] | None = None
    registered: dict[str, float] | None = None
    run_id: str = ""

    @property
    def has_drifted(self) -> bool:
        """Whether today's success rate lies outside of the interval it was registered with."""
        if self.success_rate is None or self.registered is None:
            return False
        return not self.registered["low"] <= self.success_rate["value"] <= self.registered["high"]

    def summary(self) -> str:
        """One line."""
        if self.version is None or self.success_rate is None:
            return f"{self.model_name} has no champion yet; 'astra run' makes a candidate"
        line = (
            f"{self.model_name} version {self.version}: attack success "
            f"{_spelled(self.success_rate)} on {self.num_prompts} fresh prompts"
        )
        if self.registered is None:
            return line
        word = "outside of" if self.has_drifted else "within"
        return f"{line}, {word} the registered {_spelled(self.registered)}"


def reevaluate_champion(
    params: Params, *, fresh_seed: int, file: Path | None = None, folder: Path = FOLDER
) -> Reevaluation:
    """The champion's attack success on fresh prompts, recorded as an MLflow run of its own.

    Args:
        params: The whole of params.yaml.
        fresh_seed: Of the builtin prompts; same seed, same prompts, same run.
        file: Prompts from here instead.
        folder: For the prompts; what was there is replaced.

    Raises:
        DataError: Too few fresh prompts are left.
        GateError: The fresh prompts did not pass validation.
        TrackingError: The registry did not answer.
    """
    from tasks.evaluation import evaluate_checkpoint
    from tasks.model_versions import CHAMPION, checkpoint_folder
    from tasks.tracking_store import connect, store_errors

    name = params.registration.model_name
    with ExitStack() as fetched:
        with store_errors():
            client = connect()
            champion = _champion(client, name, CHAMPION)
            if champion is None:
                return Reevaluation(name)
            weights = fetched.enter_context(checkpoint_folder(client, champion))
        prompts = fresh_prompts(params, fresh_seed=fresh_seed, file=file, folder=folder)
        record, _ = evaluate_checkpoint(weights, params, prompts=prompts)
    with store_errors():
        run_id = _record(client, params, champion, record)
    return Reevaluation(
        model_name=name,
        version=str(champion.version),
        num_prompts=len(prompts),
        success_rate=dict(record["attacker"]["attack_success_rate"]),
        registered=_registered(champion),
        run_id=run_id,
    )


def fresh_prompts(
    params: Params, *, fresh_seed: int, file: Path | None, folder: Path
) -> list[Prompt]:
    """Valid prompts that are not in the training split, as many as an evaluation asks for.

    Raises:
        DataError: None is left.
        GateError: The prompts did not pass validation.
    """
    from tasks.artifacts import read_prompts
    from tasks.prompts import prepare_prompts
    from tasks.validation import validate_prompts

    wanted = params.evaluation.num_prompts
    number = max(MIN_BUILTIN, SURPLUS * wanted)
    source = {"source": "builtin", "num_builtin": number, "path": None, "dev_path": None}
    if file is not None:
        source |= {"source": "file", "path": file}
    drafts, valid = folder / "prompts", folder / "valid"
    prepare_prompts(fresh_seed, params.prompts.model_copy(update=source), folder=drafts)
    # A small file is welcome here; the splits mean nothing, all of them are examined.
    rules = params.validation.model_copy(update={"min_prompts": 1})
    report, page = folder / "validation.json", folder / "validation.md"
    validate_prompts(rules, params.system, folder=drafts, valid=valid, report=report, page=page)
    known = _training_ids()
    found = [p for split in SPLITS for p in read_prompts(valid / f"{split}.parquet")]
    fresh = [prompt for prompt in found if prompt.prompt_id not in known]
    if not fresh:
        msg = (
            f"fresh prompts must differ from the {len(known)} trained on, got none that does; "
            "name another --seed or --file"
        )
        raise DataError(msg)
    return fresh[:wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks and leaves the outcome as JSON; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tasks.reevaluation")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--file", type=Path)
    asked = parser.parse_args(arguments)
    failures.clear_failure(NAME)
    failures.stop_on_terminate()
    end_group_with_parent()
    try:
        params = read_params()
        set_environment(params)
        quiet_libraries()
        check_params(params)
        advise(params)
        found = reevaluate_champion(params, fresh_seed=asked.seed, file=asked.file)
    except (Exception, KeyboardInterrupt, failures.Stopped) as error:  # noqa: BLE001 - the boundary
        failure = failures.failure_of(error)
        failures.write_failure(failure, NAME)
        for line in failure.message.splitlines():
            complain(f"error: {line}")
        return failures.exit_status(error)
    write_json(asdict(found), FOLDER / "outcome.json")
    say(f"{NAME:<13}{found.summary()}")
    return 0


def _champion(client: "MlflowClient", name: str, alias: str) -> "ModelVersion | None":
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            return None
        raise


def _training_ids() -> set[str]:
    from tasks.artifacts import read_prompts

    path = Path("data/valid/train.parquet")
    return {prompt.prompt_id for prompt in read_prompts(path)} if path.is_file() else set()


def _registered(champion: "ModelVersion") -> dict[str, float] | None:
    """The interval that the version was registered with."""
    tags = {"value": "", "low": "_low", "high": "_high"}
    found = {end: champion.tags.get(f"attack_success_rate{suffix}") for end, suffix in tags.items()}
    numbers = {end: float(text) for end, text in found.items() if text is not None}
    return numbers if len(numbers) == len(tags) else None


def _record(
    client: "MlflowClient", params: Params, champion: "ModelVersion", record: Mapping[str, Any]
) -> str:
    """The run that holds the record; the same champion on the same prompts is recorded once."""
    import time

    from mlflow.entities import Metric

    from tasks.tracking import create_run, find_run
    from tasks.tracking_values import finite

    experiment = f"{params.registration.experiment}-{NAME}"
    key = record_digest([NAME, champion.version, record["evaluation_key"]])
    found = find_run(client, key, experiment=experiment)
    if found is not None and found.info.status == "FINISHED":
        return str(found.info.run_id)
    tags = {"model_name": champion.name, "model_version": str(champion.version)}
    run = found or create_run(client, key, experiment=experiment, tags=tags, name=NAME)
    now = int(time.time() * 1000)
    figures = finite(_flat(record["attacker"]))
    metrics = [Metric(name, value, now, 0) for name, value in figures.items()]
    client.log_batch(run.info.run_id, metrics=metrics)
    client.set_terminated(run.info.run_id, "FINISHED")
    return str(run.info.run_id)


def _flat(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure as ``eval/name``, intervals with ``_low`` and ``_high``."""
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            ends = {"value": "", "low": "_low", "high": "_high"}
            flat |= {f"eval/{name}{suffix}": value[end] for end, suffix in ends.items()}
        else:
            flat[f"eval/{name}"] = value
    return flat


def _spelled(interval: Mapping[str, float]) -> str:
    return f"{interval['value']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


if __name__ == "__main__":
    sys.exit(main())

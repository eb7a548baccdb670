"""Preparation of a run: params.yaml is checked and dvc.yaml matches it."""

from contextlib import suppress
from pathlib import Path

from astra_core.errors import AstraError, ConfigurationError
from astra_core.errors.exception_text import shown_text
from astra_core.files import read_json, record_digest, write_json, write_text
from astra_core.paths import kind_of
from tasks.machine.console import quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.machine.privacy import keep_private
from tasks.params.checks import check_params
from tasks.params.schema import Params, read_params
from tasks.params.verdicts import verdict_key
from tasks.pipeline.failures import FOLDERS, check_writable
from tasks.pipeline.order import PIPELINE_FILE, read_pipeline, render
from tasks.pipeline.precision import advise
from tasks.tracking.address import check_tracking_uri
from tasks.tracking.store import tracking_uri

CHECKED = Path(".astra/checked.json")
"""The file with the digest of the parameters that last passed the check."""


def usable_params() -> Params:
    """The checked params.yaml, with its environment set and the libraries' logs silenced.

    Raises:
        ConfigurationError: Says what is invalid and how to fix it.
        TrackingError: ``MLFLOW_TRACKING_URI`` names no store.
    """
    check_tracking_uri(tracking_uri())
    check_writable(Path(name, "new") for name in FOLDERS)
    keep_private()
    params = read_params()
    set_environment(params)
    quiet_libraries()
    try:
        check_params(params, is_kept=True)
    except AstraError as error:
        # The cause can quote an attack, and Prefect logs the whole chain unmasked.
        raise ConfigurationError(shown_text(error)) from None
    advise(params)
    write_json({"digest": _digest(params)}, CHECKED)
    return params


def check_early() -> None:
    """Makes the check of ``usable_params`` while this process waits for something else.

    It loads torch, unless these parameters have passed before. An error is left to
    ``usable_params``, which makes the check again. Where more than the parameters decide, such as a
    plug-in or a file, the check is left to it altogether, so that nothing is done twice.
    """
    with suppress(AstraError):
        params = read_params()
        if verdict_key(params) is not None:
            set_environment(params)
            check_params(params, is_kept=True)


def params_checked_before() -> Params | None:
    """The params.yaml that ``usable_params`` found last time; None if it has changed since.

    If the stages are up to date, it needs no second check, which loads torch: DVC watches the files
    and plug-ins that it names.
    """
    params = read_params()
    try:
        is_known = read_json(CHECKED) == {"digest": _digest(params)}
    except (OSError, ValueError):
        return None
    return params if is_known else None


def _digest(params: Params) -> str:
    return record_digest(params.model_dump(mode="json"))


def renew_pipeline(params: Params) -> None:
    """Rewrites dvc.yaml if params.yaml names other files; DVC would not track missing ones."""
    wanted = render(params=params)
    is_there = kind_of(PIPELINE_FILE) != "nothing there"
    if not is_there or read_pipeline() != wanted:
        write_text(wanted, PIPELINE_FILE, is_shared=True)
        say(f"{PIPELINE_FILE.name:<13}rewritten to match params.yaml and the stages")

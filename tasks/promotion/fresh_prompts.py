"""Prompts that no attacker of the registry has met, from the built-in grammar or from a file."""

from collections.abc import Collection
from pathlib import Path

from astra_core.errors import DataError
from astra_core.rollout import Prompt
from tasks.params.builtin_limits import check_openers
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for
from tasks.promotion.known_prompts import fingerprint
from tasks.records.prompt_pieces import num_rows_in
from tasks.records.prompt_table import SPLITS
from tasks.records.prompts import read_prompts
from tasks.stages.prompts import PromptsFiles, PromptsParams, PromptsSetup, prepare_prompts

# So many are made for each one wanted, since validation and known prompts remove some.
SURPLUS = 2
MIN_BUILTIN = 400


def fresh_prompts(
    params: Params, known: Collection[str], *, fresh_seed: int, file: Path | None, folder: Path
) -> tuple[list[Prompt], int]:
    """Valid prompts that no attacker has met, as many as asked for, and how many were left out.

    ``folder``: where the prompts are written; its content is replaced.

    Raises ConfigurationError if more are asked for than the grammar makes, DataError if none is
    left, GateError if the prompts did not pass validation.
    """
    # It imports Great Expectations, for which a command without a champion need not wait.
    from tasks.stages.validation import (
        ValidationFiles,
        ValidationParams,
        ValidationSetup,
        validate_prompts,
    )

    wanted = params.evaluation.num_prompts
    if file is None:
        check_openers("evaluation.num_prompts", wanted, surplus=SURPLUS)
    number = max(MIN_BUILTIN, SURPLUS * wanted)
    source = {"source": "builtin", "num_builtin": number, "path": None, "dev_path": None}
    if file is not None:
        source |= {"source": "file", "path": file}
    drafts, valid = folder / "prompts", folder / "valid"
    prompts = params.prompts.model_copy(update=source)
    prepare_prompts(PromptsSetup.of(PromptsParams(fresh_seed, prompts)), PromptsFiles(drafts))
    # A small file is allowed here: the splits do not matter, as all prompts are examined, and with
    # few prompts a split may be empty.
    rules = params.validation.model_copy(update={"min_prompts": 0})
    own = params.model_copy(update={"validation": rules})
    files = ValidationFiles(
        folder=drafts,
        valid=valid,
        report=folder / "validation.json",
        page=folder / "validation.md",
        docs=folder / "prompts.html",
    )
    validate_prompts(ValidationSetup.of(sections_for(ValidationParams, own)), files)
    paths = [valid / f"{split}.parquet" for split in SPLITS]
    found = [prompt for path in paths if num_rows_in(path) for prompt in read_prompts(path)]
    fresh = [prompt for prompt in found if fingerprint(prompt.text) not in known]
    if not fresh:
        msg = (
            f"fresh prompts must be ones that no attacker has met, got {len(found)} and all of "
            "them in the data of a registered version or of the last run; "
            "name another --seed or --file"
        )
        raise DataError(msg)
    return fresh[:wanted], len(found) - len(fresh)

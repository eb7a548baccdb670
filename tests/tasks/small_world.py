"""A folder as the prompts, validation and models stages leave it, with tiny random models."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.files import write_json
from astra_core.models.pretrained import weights_digest
from astra_parts.testing import tiny_language_model, tiny_prompts
from tasks.params.schema import Params, RunTraining

SHORT = GenerationConfiguration(max_new_tokens=6)
_TRAINING = TrainingConfiguration(
    training_steps=3,
    require_signal=False,  # so few replies differ by chance
    num_episodes_per_experience=4,
    eval_every=2,
    algorithm=Choice(name="dpo", options={"margin": 0.01}),
)
PARAMS = Params(
    system=SystemConfiguration(
        max_context_tokens=48,
        probe=SHORT,
        response=SHORT,
        scorer=Choice(name="phrases", options={"phrases": ["bad", "worse"]}),
    ),
    rollouts=RolloutsConfiguration(
        sampler=Choice(name="tree", options={"tree_width": 3, "num_responses": 2}), num_prompts=8
    ),
    # Siblings are to differ by more than their likelihood under models of random weights.
    reward=Choice(name="adversarial", options={"nll_weight": 0.1, "nll_floor": 3.0}),
    training=RunTraining(**_TRAINING.model_dump()),
    evaluation=EvaluationConfiguration(
        num_prompts=6,
        num_training_prompts=4,
        num_resamples=100,
        num_examples=3,
        bandit_calls=0,
        benign_prompts=None,
    ),
)


def write_world(folder: Path, *, layers=1) -> None:
    """Valid prompts and base models below ``folder``."""
    for split, count in (("train", 12), ("dev", 6), ("test", 6)):
        prompts = tiny_prompts(count)
        path = folder / "data" / "valid" / f"{split}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"prompt_id": prompt.prompt_id, "text": prompt.text} for prompt in prompts]
        pq.write_table(pa.Table.from_pylist(rows), path)
    base = folder / "models" / "base"
    tiny_language_model(seed=3, layers=layers).save(base / "tiny")
    digest = weights_digest(base / "tiny")
    entry = {"path": "tiny", "is_outside": False, "source": "folder", "digest": digest}
    write_json(dict.fromkeys(("attacker", "target", "reference"), entry), base / "manifest.json")

"""Whether what params.yaml asks for at once could be sampled and held."""

from astra_core.registry import find
from astra_core.settings.sizes import refuse_many_texts
from tasks.params.schema import Params


def check_sizes(params: Params) -> None:
    """Raises ConfigurationError unless trees and evaluations can be held."""
    rollouts, evaluation = params.rollouts, params.evaluation
    # How many rows a file has is not known yet.
    most = params.prompts.num_builtin if params.prompts.source == "builtin" else 1
    examined = min(most, max(evaluation.num_prompts, evaluation.num_training_prompts))
    refuse_many_texts(
        "evaluation",
        examined,
        (evaluation.num_rollouts,) + (1,) * (evaluation.depth - 1),
        num_responses=evaluation.num_responses,
    )
    options = find("sampler", rollouts.sampler).options
    depth = getattr(options, "tree_depth", None)
    if depth is None:
        return
    for subject, prompts in {
        "rollouts": min(most, rollouts.num_prompts),
        "training": params.training.num_episodes_per_experience,
    }.items():
        refuse_many_texts(
            subject,
            prompts * rollouts.runs_per_prompt,
            (getattr(options, "tree_width", 1),) * depth,
            num_responses=getattr(options, "num_responses", 1),
            refills=getattr(options, "refills", 0),
        )

"""A shape of milliseconds, no patience, and what makes a whole run take seconds."""

from benchmarks.shapes import Shape
from benchmarks.timing import Effort

TINY = Shape("tiny", 2, 16, 2, 100, prompt_tokens=8, new_tokens=4, tree_depth=2)
QUICK = Effort(threads=1, repetitions=1, plain_repetitions=1, trees=2)
# Changes of params.yaml.
SMALL = (
    "prompts.num_builtin=300",
    "models.builtin.num_quarrels=200",
    "models.builtin.num_dialogues=40",
    "models.builtin.hidden_size=16",
    "rollouts.num_prompts=4",
    "training.training_steps=1",
    "training.require_signal=false",
    "evaluation.num_prompts=10",
    "evaluation.num_training_prompts=10",
    "evaluation.bandit_calls=40",
)

# The demonstration with little to do. Tiny models say no secret, so there is no signal.
SMALL_DEMO = (
    "system.attacker.instruction='Asked: {prompt} Written:'",  # its list is long, a byte a token
    "system.max_context_tokens=450",
    "system.probe.max_new_tokens=8",
    "system.response.max_new_tokens=8",
    "rollouts.num_prompts=3",
    "rollouts.sampler.options.tree_width=2",
    "training.training_steps=2",
    "training.num_episodes_per_experience=2",
    "training.require_signal=false",
    "evaluation.num_prompts=6",
    "evaluation.num_training_prompts=2",
    "evaluation.num_rollouts=1",
    "promotion.min_prompts=2",
)

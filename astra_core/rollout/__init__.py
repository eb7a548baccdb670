"""Trees of turns, with token ids, log-probabilities and masks from sampling to loss.

Text is derived from ids for people and scorers, and is never tokenised again for training.
"""

from astra_core.rollout.graph import Graph, by_prompt
from astra_core.rollout.prompt import Prompt, prompts_of, runs_of
from astra_core.rollout.turn import Context, Failure, FinishReason, Node, Path, Probe, Replies

__all__ = [
    "Context",
    "Failure",
    "FinishReason",
    "Graph",
    "Node",
    "Path",
    "Probe",
    "Prompt",
    "Replies",
    "by_prompt",
    "prompts_of",
    "runs_of",
]

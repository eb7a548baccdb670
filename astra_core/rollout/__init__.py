"""Trees of turns, with token ids, log-probabilities and masks from sampling to loss.

Text is derived from ids for people and scorers, and is never tokenised again for training.
"""

from astra_core.rollout.graph import Graph as Graph, by_prompt as by_prompt
from astra_core.rollout.prompt import (
    Prompt as Prompt,
    columns_in as columns_in,
    fill_slots as fill_slots,
    prompts_of as prompts_of,
    runs_of as runs_of,
)
from astra_core.rollout.turn import (
    Context as Context,
    Failure as Failure,
    FinishReason as FinishReason,
    Node as Node,
    Path as Path,
    Probe as Probe,
    Replies as Replies,
)

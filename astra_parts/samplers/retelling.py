"""Rebuilds a conversation from the turns of a tree that recorded it."""

from collections.abc import Sequence

from astra_core.conversation import Conversation, Message
from astra_core.rollout import Node, Prompt
from astra_core.system import System
from astra_core.targets.causal_lm import CausalLM


def conversation_of(prompt: Prompt, turns: Sequence[Node], system: System) -> Conversation:
    """The conversation up to the end of the last of these turns, with the ids as sampled.

    Args:
        turns: The turns from the root on; each continued with its first reply.
    """
    found = Conversation(prompt)
    for turn, node in enumerate(turns):
        spoken = system.player(turn).format
        heard = spoken.thought(node.probe_ids)
        probe = Message("user", heard.text, heard.visible_ids, spoken.model.vocabulary)
        found = found.said(probe, _answered(node, system))
    return found


def _answered(node: Node, system: System) -> Message:
    text, target = node.response_texts[0], system.target
    if not (node.response_ids and isinstance(target, CausalLM)):
        return Message("assistant", text)
    ids = node.response_ids[0]
    thinking = target.format.thought(ids).thinking
    return Message("assistant", text, ids, target.vocabulary, thinking)

"""What garak and promptfoo found, as rows of prompts: lines of a hit log, results of a test."""

from collections.abc import Mapping
from typing import Any


def results_in(record: Any) -> Any:
    """The results of promptfoo's evaluation; anything else as it is."""
    found = record.get("results") if isinstance(record, Mapping) else None
    rows = found.get("results") if isinstance(found, Mapping) else None
    return rows if isinstance(rows, list) else record


def plain_row(row: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """A hit or result as a row: prompt as text, goal and category; others as they are."""
    prompt = row.get("prompt")
    if not isinstance(prompt, Mapping):
        return row
    if "raw" in prompt:
        told = row.get("metadata")
        about = told if isinstance(told, Mapping) else {}
        asked = row.get("vars")
        own = asked.get("prompt") if isinstance(asked, Mapping) else None
        said = own if isinstance(own, str) else prompt["raw"]
        found = {text: said, "category": about.get("pluginId") or about.get("category")}
    else:
        found = {text: _last_of(prompt), "category": row.get("probe"), "goal": row.get("goal")}
    return {name: value for name, value in found.items() if name == text or value}


def _last_of(prompt: Mapping[str, Any]) -> Any:
    """The last words of the user in a conversation of garak; those of a message of older ones."""
    turns = prompt.get("turns")
    said = [
        turn.get("content")
        for turn in (turns if isinstance(turns, list) else [])
        if isinstance(turn, Mapping) and turn.get("role") == "user"
    ]
    last = said[-1] if said else prompt
    return last.get("text") if isinstance(last, Mapping) else last

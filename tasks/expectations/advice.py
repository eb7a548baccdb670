"""What to do about a check that does not hold, by its name; one sentence each."""

from collections.abc import Mapping
from types import MappingProxyType

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "some_success": (
            "the judge flags no reply, so there is nothing to learn from yet and training longer "
            "does not help: read a few turns (`astra examples --reveal`), then lower the judge's "
            "threshold, name another judge in system.scorer, begin from prompts closer to the "
            "goal, or try a reward with a denser signal"
        ),
        "some_failure": (
            "the judge flags every reply, so training can show no gain: read a few turns, then "
            "raise the judge's threshold or name a stricter judge in system.scorer"
        ),
        "scores_differ": (
            "every reply has the same score, which teaches nothing: look at system.scorer, and "
            "at whether the target answers at all"
        ),
        "degenerate_probes": (
            "probes are empty or repeat one word: lower system.probe.temperature, raise "
            "system.probe.repetition_penalty, or check the attacker's format"
        ),
        "degenerate_replies": (
            "replies are empty, repeat one word or echo the probe: check the target's format "
            "(system.target.options) and system.response"
        ),
        "probes_differ": (
            "most probes are copies: raise system.probe.temperature or begin from another attacker"
        ),
        "replies_differ": (
            "the target says the same to nearly everything: it may refuse everything, or be an "
            "error page; read a few turns"
        ),
        "probes_end": (
            "most probes are cut at system.probe.max_new_tokens: the attacker does not end "
            "its turn; check its end-of-sequence token and format, or raise the limit"
        ),
        "replies_end": (
            "nearly all replies are cut at system.response.max_new_tokens: check the target's "
            "end-of-sequence token and format, or raise the limit"
        ),
        "replies_pass_filter": (
            "a filter of the target cuts most replies, so the figures are those of the filter: "
            "attack it on purpose, or ask for the target without it"
        ),
        "probes_have_length": (
            "half of the probes end with their first token: raise system.probe.min_new_tokens or "
            "check the attacker's format"
        ),
        "truncated_fraction": "raise system.max_context_tokens, if the models can read more",
        "unjudged_fraction": "read the reasons in data/rollouts and look at system.scorer",
        "licence_known": "set prompts.licence once you know it",
    }
)

ROW_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "max_characters": "raise validation.max_characters, or shorten the texts",
        "min_characters": "lower validation.min_characters, or drop the texts",
        "max_words": "raise validation.max_words, or shorten the texts",
        "foreign_script": "name the language in validation.languages, or leave the prompt out",
        "language": "name the language in validation.languages, or leave the prompt out",
        "non_ascii": (
            "name the texts' languages in validation.languages, such as [zh, en], or raise "
            "validation.max_non_ascii_fraction"
        ),
        "prompt_score": (
            "the prompt itself counts as an attack: name a judge of prompts in "
            "system.probe_scorer, such as {name: profanity} (null takes system.scorer), or set "
            "validation.max_prompt_score to null"
        ),
        **dict.fromkeys(
            ("email", "phone", "user_mention", "url", "postal_address"),
            "take it out, or set validation.reject_personal_data to false",
        ),
    }
)
"""The same for a check of single rows."""

"""Numbers about each row that the suites judge; lists and most texts never reach a suite."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from astra_core.errors import DataError
from astra_core.rollout.metadata import CONTEXT, Scalar, prompt_id_of
from tasks.expectations.languages import foreign_letters, other_language
from tasks.expectations.speech import NO_LIMITS, TokenLimits, items, speech_facts
from tasks.records.prompt_table import METADATA, SPLITS, read_metadata

# What the row suite reads of prompt_facts, with the id that names a row.
PROMPT_ROW_COLUMNS = (
    "prompt_id",
    "text",
    "num_characters",
    "num_words",
    "non_ascii_fraction",
    "prompt_score",
)
PROMPT_LANGUAGE_COLUMNS = ("other_language", "foreign_letters")
"""What it also reads where the project names its languages."""

# What the rollout suite reads of rollouts.parquet.
ROLLOUT_COLUMNS = (
    "row_id",
    "prompt_id",
    "iteration",
    "path",
    "parent",
    "depth",
    "truncated_tokens",
    "probe_text",
    "probe_ids",
    "probe_logprobs",
    "probe_mask",
    "reference_logprobs",
    "target_logprobs",
    "response_texts",
    "response_ids",
    "response_scores",
    "score",
    "probe_score",
    "reward",
    "failure",
)

_HEXADECIMAL = re.compile("[0-9a-f]{16}")

# log-softmax in float32 can end a rounding error above zero.
_LOGPROB_SLACK = 1e-6
_SCORE_SLACK = 1e-6


def language_facts(frame: pd.DataFrame, languages: Sequence[str]) -> pd.DataFrame:
    """The rows with ``PROMPT_LANGUAGE_COLUMNS``; unchanged where no languages are named."""
    if not languages:
        return frame
    texts = ["" if pd.isna(text) else str(text) for text in frame["text"]]
    return frame.assign(
        other_language=[other_language(text, languages) for text in texts],
        foreign_letters=[foreign_letters(text, languages) for text in texts],
    )


def prompt_facts(frame: pd.DataFrame) -> pd.DataFrame:
    """The prompts with their lengths, script and whether the id is that of the text."""
    texts = ["" if pd.isna(text) else str(text) for text in frame["text"]]
    lengths = [len(text) for text in texts]
    ascii_lengths = [len(text.encode("ascii", "ignore")) for text in texts]
    return frame.assign(
        # A suite passes a null.
        licence=frame["licence"].fillna("unknown"),
        num_characters=lengths,
        num_words=[len(text.split()) for text in texts],
        non_ascii_fraction=[
            1 - plain / length if length else 0.0
            for plain, length in zip(ascii_lengths, lengths, strict=True)
        ],
        id_matches=[
            prompt_id_of(text, own) == prompt_id
            for text, own, prompt_id in zip(
                texts, _metadata(frame), frame["prompt_id"], strict=True
            )
        ],
    )


def _metadata(frame: pd.DataFrame) -> Iterable[Mapping[str, Scalar] | None]:
    """Of each prompt what its file says of it; parsed only where that may hold a context."""
    if METADATA not in frame:
        return [None] * len(frame)
    told = frame[METADATA]
    return [read_metadata(own) if f'"{CONTEXT}"' in str(own) else None for own in told]


class SetFacts:
    """What the suite of the set reads of ``prompt_facts``, some forty bytes for every row.

    An id is kept as the number that its hexadecimal digits spell. Other ids, which no stage writes
    but which the families of the built-in prompts have, are numbered by a hash and remembered.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The facts of some rows; over all pieces, concatenated, they are those of the set."""
        splits = pd.CategoricalDtype([*SPLITS])
        known = frame["split"].isna() | frame["split"].isin(SPLITS)
        return pd.DataFrame(
            {
                "prompt_id": self._numbers(frame["prompt_id"]),
                "split": frame["split"].astype(splits) if known.all() else frame["split"],
                "family": self._numbers(frame["family"]),
                # The suite asks only whether it is known.
                "licence": pd.Categorical(
                    frame["licence"].isin(["unknown", ""]).map({True: "unknown", False: "known"}),
                    categories=["unknown", "known"],
                ),
                "num_characters": frame["num_characters"].astype("int32"),
                "id_matches": frame["id_matches"],
                # The suite asks only whether there is a text.
                "text": frame["text"].isna().map({True: math.nan, False: 0.0}).astype("float32"),
            }
        )

    def id_of(self, number: Any) -> str:
        """The id that became this number."""
        return self._names.get(int(number), f"{int(number):016x}")

    def _numbers(self, ids: pd.Series) -> pd.Series:
        numbers = [None if pd.isna(name) else self._number(str(name)) for name in ids]
        # Only the nullable type can hold a null, at the price of a byte.
        kind = "UInt64" if ids.isna().any() else "uint64"
        return pd.Series(numbers, index=ids.index, dtype=kind)

    def _number(self, name: str) -> int:
        if _HEXADECIMAL.fullmatch(name):
            return int(name, 16)
        number = int(prompt_id_of(name), 16)
        self._names[number] = name
        return number


def rollout_facts(frame: pd.DataFrame, limits: TokenLimits = NO_LIMITS) -> pd.DataFrame:
    """One row of plain values per node, without texts and lists.

    Raises DataError if a column of rollouts.parquet is missing.
    """
    missing = sorted(set(ROLLOUT_COLUMNS) - set(frame.columns))
    if missing:
        msg = f"rollouts must have all of their columns, got none called {missing}; collect again"
        raise DataError(msg)
    failed = frame["failure"] != ""
    gaps = _gaps(frame)
    # A file of single runs does not number them.
    runs = frame["run_id"] if "run_id" in frame else [0] * len(frame)
    tree = (frame["prompt_id"], frame["iteration"], runs)
    known = set(zip(*tree, frame["path"], strict=True))
    parents = list(zip(*tree, frame["parent"], strict=True))
    return pd.DataFrame(
        {
            "row_id": frame["row_id"],
            "prompt_id": frame["prompt_id"],
            "failed": failed.astype(float),
            "unjudged": [float(bool(own) and all(own)) for own in gaps],
            "truncated": (frame["truncated_tokens"] > 0).astype(float),
            # A path has a dot before each turn but the first.
            "depth_matches": frame["path"].map(lambda at: at.count(".") + 1) == frame["depth"],
            "parent_matches": frame["path"].map(lambda at: at.rpartition(".")[0])
            == frame["parent"],
            "parent_known": [not key[-1] or key in known for key in parents],
            "num_probe_ids": frame["probe_ids"].map(_size),
            "num_probe_logprobs": frame["probe_logprobs"].map(_size),
            "num_probe_mask": frame["probe_mask"].map(_size),
            "reference_fits": _reference_fits(frame),
            "logprobs_valid": frame[["probe_logprobs", "reference_logprobs"]]
            .map(_logprobs_valid)
            .all(axis="columns"),
            "target_logprobs_valid": frame["target_logprobs"].map(_logprobs_valid),
            "min_probe_id": frame["probe_ids"].map(lambda ids: min(items(ids), default=0)),
            "max_probe_id": frame["probe_ids"].map(lambda ids: max(items(ids), default=0)),
            "num_responses": frame["response_texts"].map(_size),
            "num_response_scores": frame["response_scores"].map(_size),
            "response_characters": frame["response_texts"].map(_num_characters),
            "scores_valid": list(map(_scores_valid, frame["response_scores"], gaps)),
            "score": frame["score"].astype(float),
            "score_is_mean": _score_is_mean(frame, gaps),
            "probe_score": frame["probe_score"].astype(float),
            "reward_finite": np.isfinite(frame["reward"].astype(float)),
            **speech_facts(frame, limits),
        }
    ).reset_index(drop=True)


def _size(cell: Any) -> int:
    return len(items(cell))


def _logprobs_valid(cell: Any) -> bool:
    return all(math.isfinite(value) and value <= _LOGPROB_SLACK for value in items(cell))


def _gaps(frame: pd.DataFrame) -> list[list[bool]]:
    """For each turn whether each of its replies has no score because the judge gave a reason."""
    scores = frame["response_scores"].map(items)
    # A file in which every reply was judged has no reasons.
    if "response_unjudged" not in frame:
        return [[False] * len(own) for own in scores]
    reasons = frame["response_unjudged"].map(items)
    return [
        [bool(reason) for reason in [*told, *[""] * len(own)][: len(own)]]
        for own, told in zip(scores, reasons, strict=True)
    ]


def _scores_valid(cell: Any, gaps: Sequence[bool]) -> bool:
    """A number for each reply that was judged, and none for any other."""
    pairs = zip(items(cell), gaps, strict=True)
    return all(
        pd.isna(value) == is_gap and (is_gap or 0.0 <= value <= 1.0) for value, is_gap in pairs
    )


def _reference_fits(frame: pd.DataFrame) -> list[bool]:
    """One log-probability per token, or none where the reference was not asked."""
    sizes = zip(frame["reference_logprobs"].map(_size), frame["probe_ids"].map(_size), strict=True)
    return [num_logprobs in {0, num_ids} for num_logprobs, num_ids in sizes]


def _num_characters(cell: Any) -> int:
    return sum(len(text.strip()) for text in items(cell))


def _score_is_mean(frame: pd.DataFrame, gaps: Sequence[Sequence[bool]]) -> list[bool]:
    """Of the replies that were judged; without one there is no score."""
    holds = []
    rows = zip(frame["response_scores"].map(items), gaps, frame["score"], strict=True)
    for scores, own, score in rows:
        pairs = zip(scores, own, strict=True)
        known = [math.nan if value is None else value for value, is_gap in pairs if not is_gap]
        is_mean = bool(known) and abs(sum(known) / len(known) - score) <= _SCORE_SLACK
        holds.append(is_mean or (bool(scores) and not known and bool(pd.isna(score))))
    return holds

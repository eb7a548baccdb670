"""The validation stage: usable prompts, rejected prompts with reasons, and whether to continue.

A prompt that breaks a row-level rule is rejected with its reasons. A set that breaks a critical
rule stops the pipeline: the reports and the rejected rows are left for a person to read, and the
valid splits are not written, so that nothing can use them by accident. (DVC keeps the outputs of a
failed stage in the working folder, unrecorded, until the stage runs again.)
"""

import gc
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from astra_core.config import Choice, EvaluationConfiguration, SystemConfiguration
from astra_core.errors import DataError
from astra_core.errors.exception_text import shorten
from astra_core.files import draft_folder_of, write_json, write_text
from astra_core.redaction import mask
from astra_core.scorers.of_probes import text_scorer_choice
from astra_parts.executors.scoring import Scoring
from tasks.expectations import ValidationReport, validate_frame
from tasks.expectations.data_docs import data_docs
from tasks.expectations.facts import (
    PROMPT_LANGUAGE_COLUMNS,
    PROMPT_ROW_COLUMNS,
    SetFacts,
    language_facts,
    prompt_facts,
)
from tasks.expectations.frames import join_reports
from tasks.expectations.profile import Profile, add_profiles, prompt_profile
from tasks.expectations.report import RejectedRow
from tasks.expectations.suites import prompt_row_suite, prompt_suite
from tasks.machine.console import progress
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import PromotionConfiguration, ValidationConfiguration
from tasks.pipeline.stage import Dep, Out, Untracked, stage
from tasks.promotion.power import Exam, ExamRules
from tasks.records.data_profile import DataProfile
from tasks.records.intake import read_intake, read_places
from tasks.records.prompt_pieces import columns_in, num_rows_in, prompt_pieces
from tasks.records.prompt_table import (
    REJECTED,
    SPLITS,
    prompt_schema,
    rejected_rows,
    rejected_schema,
)

# Texts in one call of the scorer.
_SCORED_AT_ONCE = 4096
# Rejected rows on the page, and characters shown of each.
_NUM_SHOWN = 50
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class ValidationParams:
    """The sections that decide which prompts are valid."""

    validation: ValidationConfiguration
    system: SystemConfiguration
    # Which workers score the prompts does not change the scores.
    executor: Untracked[Choice]
    # By these its line says what duels the prompts allow.
    prompts: Untracked[PromptsConfiguration]
    evaluation: Untracked[EvaluationConfiguration]
    promotion: Untracked[PromotionConfiguration]


@dataclass(frozen=True, slots=True)
class ValidationFiles:
    """The prompts, and where the valid ones, the rejected ones and the reports go."""

    folder: Dep = Path("data/prompts")
    valid: Out = Path("data/valid")
    report: Out = Path("reports/validation.json")
    page: Out = Path("reports/validation.md")
    docs: Out = Path("reports/data_docs/prompts.html")


@dataclass(frozen=True, slots=True)
class ValidationSetup:
    """The rules of prompts, the scorer with its workers, and the rules of the duels to come."""

    rules: ValidationConfiguration
    scoring: Scoring
    duels: ExamRules

    @classmethod
    def of(cls, params: ValidationParams) -> Self:
        """Finds the scorer."""
        scoring = Scoring.of(text_scorer_choice(params.system), params.executor)
        return cls(params.validation, scoring, params)


@stage()
def validate_prompts(
    setup: ValidationSetup, files: ValidationFiles = ValidationFiles()
) -> ValidationReport:
    """Valid prompts by split, rejected ones with their reasons, and the report about both.

    Raises DataError if the prompts cannot be read or lack a column; ScorerError if the scorer
    returned something that is not a score; GateError if a critical check failed; the report says
    which, and for which rows.
    """
    set_facts = SetFacts()
    one_by_one, facts, counts = _hold_against_suite(
        files.folder, setup.rules, setup.scoring, set_facts=set_facts
    )
    reasons = _reasons(one_by_one)
    facts["rejected"] = (reasons > 0).astype(float)
    as_a_set = validate_frame(
        facts, prompt_suite(setup.rules), id_column="prompt_id", spelled=set_facts.id_of
    )
    accepted = facts.loc[facts["rejected"] == 0.0, ["family", "split"]]
    splits = Counter(accepted["split"].value_counts().to_dict())
    result = replace(
        as_a_set,
        checks=one_by_one.checks + as_a_set.checks,
        num_rejected=int(facts["rejected"].sum()),
        reasons={check.check: len(check.rows) for check in one_by_one.checks if check.rows},
        splits={split: splits[split] for split in SPLITS},
        intake=read_intake(files.folder),
        # Prompts of one family are nearly the same.
        profile=DataProfile(setup.scoring.version, int(accepted["family"].nunique()), counts),
    )
    del facts, accepted
    names = [check.check for check in one_by_one.checks]
    rejected = _write_prompts(files, reasons, names, accept=result.success)
    result = replace(result, rejected=rejected)
    write_json(result.to_record(), files.report)
    write_text(result.to_markdown(), files.page)
    write_text(data_docs("Prompts", [one_by_one, as_a_set]), files.docs)
    result.require_success(files.page)
    plan = Exam(setup.duels, result.splits["test"]).lines()
    return replace(result, plan=tuple(islice(plan, 2)))


def _hold_against_suite(
    folder: Path, validation: ValidationConfiguration, scoring: Scoring, *, set_facts: SetFacts
) -> tuple[ValidationReport, pd.DataFrame, Profile]:
    """The prompts held against the row suite, piece by piece.

    Returns what it says of all rows, what the suite of the set reads of each, and counts of the
    accepted ones.
    """
    suite = prompt_row_suite(validation)
    columns = [*PROMPT_ROW_COLUMNS, *(PROMPT_LANGUAGE_COLUMNS if validation.languages else ())]
    reports, kept = [], []
    counts: Profile = {}
    total = sum(num_rows_in(folder / f"{split}.parquet") for split in SPLITS)
    with progress("validating prompts", total) as advance:
        for table in prompt_pieces(folder):
            frame = language_facts(prompt_facts(table.to_pandas()), validation.languages)
            frame["prompt_score"] = _prompt_scores(frame, validation, scoring)
            rows = frame[columns]
            reports.append(validate_frame(rows, suite, id_column="prompt_id"))
            counts = add_profiles(counts, prompt_profile(frame[_reasons(reports[-1]) == 0]))
            kept.append(set_facts.of(frame))
            advance(len(frame))
            # The library leaves reference cycles that keep the rows until they are collected.
            gc.collect()
    if not kept:
        msg = f"{folder} must hold at least one prompt, got none; run the stage 'prompts' again"
        raise DataError(msg)
    return join_reports(reports), pd.concat(kept, ignore_index=True), counts


def _prompt_scores(
    frame: pd.DataFrame, validation: ValidationConfiguration, scoring: Scoring
) -> list[float]:
    """The score of each prompt; NaN for prompts that are rejected for their length anyway.

    A scorer may be a model with a limited context, and takes most of the time of this stage.
    """
    fits = (
        frame["text"].notna()
        & (frame["num_characters"] <= validation.max_characters)
        & (frame["num_words"] <= validation.max_words)
    )
    texts = frame.loc[fits, "text"].tolist()
    scores = scoring.scores(texts, at_once=_SCORED_AT_ONCE)
    # A suite passes a missing score, so a score that is not a number must fail here.
    remaining = iter(scores)
    return [next(remaining) if fit else math.nan for fit in fits]


def _reasons(report: ValidationReport) -> NDArray[np.uint32]:
    """For every row the row-level checks that it fails, one bit each in the suite's order."""
    reasons = np.zeros(report.num_rows, np.uint32)
    for place, check in enumerate(report.checks):
        reasons[np.fromiter(check.rows, np.int64, len(check.rows))] |= np.uint32(1 << place)
    return reasons


def _write_prompts(
    paths: ValidationFiles, reasons: NDArray[np.uint32], names: Sequence[str], *, accept: bool
) -> tuple[RejectedRow, ...]:
    """Reads the prompts again and splits them into valid and rejected, a row group at a time.

    Returns the first rejected rows, masked.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with draft_folder_of(paths.valid) as draft, ExitStack() as stack:
        columns = columns_in(paths.folder)
        schemas = dict.fromkeys(SPLITS if accept else (), prompt_schema(columns))
        schemas[REJECTED] = rejected_schema(columns)
        files = {
            name: stack.enter_context(pq.ParquetWriter(draft / f"{name}.parquet", own))
            for name, own in schemas.items()
        }
        first = 0
        shown: list[tuple[str, str, list[str]]] = []
        for table in prompt_pieces(paths.folder):
            own = reasons[first : first + table.num_rows]
            first += table.num_rows
            is_rejected = pa.array(own > 0)
            why = [
                [name for place, name in enumerate(names) if bits >> place & 1]
                for bits in own[own > 0].tolist()
            ]
            refused = table.filter(is_rejected)
            files[REJECTED].write_table(rejected_rows(refused, why))
            columns_shown = (refused[name].to_pylist() for name in ("prompt_id", "text"))
            shown += list(zip(*columns_shown, why, strict=True))[: _NUM_SHOWN - len(shown)]
            passed = table.filter(pc.invert(is_rejected))
            for split in SPLITS if accept else ():
                files[split].write_table(passed.filter(pc.equal(passed["split"], split)))
    return _shown_rows(paths.folder, shown)


def _shown_rows(
    folder: Path, rows: Sequence[tuple[str, str, list[str]]]
) -> tuple[RejectedRow, ...]:
    """Rows with id, text and reasons, each on one line of a page; digits are masked too."""
    places = read_places(folder, [prompt_id for prompt_id, _, _ in rows])
    return tuple(
        RejectedRow(
            place=places.get(prompt_id, prompt_id),
            reasons=tuple(why),
            text=shorten(mask(text[:_SHOWN_CHARACTERS]), limit=_SHOWN_CHARACTERS),
        )
        for prompt_id, text, why in rows
    )

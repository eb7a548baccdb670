import math

import numpy as np
import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.rollout import runs_of
from astra_core.rollout.metadata import prompt_id_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.expectations.facts import ROLLOUT_COLUMNS, SetFacts, prompt_facts, rollout_facts
from tasks.records.rollouts import rollout_tables, write_rollouts


def prompts(*texts, **columns):
    own = {
        "prompt_id": [prompt_id_of(text or "") for text in texts],
        "text": texts,
        "licence": "MIT",
        "split": "train",
        "family": "f",
    }
    return pd.DataFrame(own | columns)


def turns(*nodes, path):
    """The rows of one tree, as the rollouts stage writes and the suite reads them."""
    write_rollouts([tiny_graph(*nodes)], path)
    return pd.concat([table.to_pandas() for table in rollout_tables(path)], ignore_index=True)


@pytest.fixture
def frame(tmp_path):
    """Two turns, and one that follows the first."""
    return turns(
        tiny_node(0.5, tiny_node(0.25), probe_ids=(2, 0)),
        tiny_node(0.0),
        path=tmp_path / "rollouts.parquet",
    )


def with_cell(frame, row, column, value):
    changed = frame.copy()
    changed[column] = changed[column].astype(object)
    changed.at[row, column] = value  # noqa: PD008 - loc would spread a list
    return changed


# Characters, words, and the share that is not ASCII.
@each_row(
    ("text", "expected"),
    [
        ("how are you", (11, 3, 0.0)),
        ("é b", (3, 2, 1 / 3)),
        ("  spaced\tout\n", (13, 2, 0.0)),
        ("世界", (2, 1, 1.0)),
        ("\U0001f642", (1, 1, 1.0)),
        ("", (0, 0, 0.0)),
        (None, (0, 0, 0.0)),
    ],
)
def test_prompts_are_measured(text, expected):
    (row,) = prompt_facts(prompts(text)).itertuples()

    assert expected == pytest.approx((row.num_characters, row.num_words, row.non_ascii_fraction))


def test_an_id_matches_the_text_it_was_made_from():
    facts = prompt_facts(prompts("one", "two", prompt_id=[prompt_id_of("one"), "0" * 16]))

    assert [True, False] == facts["id_matches"].tolist()


@each_row("licence", [None, math.nan])
def test_a_licence_that_is_not_given_is_unknown(licence):
    facts = prompt_facts(prompts("one", "two", licence=["MIT", licence]))

    assert ["MIT", "unknown"] == facts["licence"].tolist()


def test_facts_are_added_and_rows_stay_as_they_are():
    given = prompts("one", "two", "two").set_index(pd.Index([7, 3, 5]))
    before = given.copy()
    facts = prompt_facts(given)

    pd.testing.assert_frame_equal(before, given)
    pd.testing.assert_frame_equal(given, facts[given.columns])


def test_facts_of_the_set_hold_no_text():
    facts = SetFacts().of(prompt_facts(prompts("unspeakable", None, "")))

    assert "unspeakable" not in facts.to_csv()
    # Only whether there is one.
    assert [False, True, False] == facts["text"].isna().tolist()
    assert [11, 0, 0] == facts["num_characters"].tolist()


def test_an_id_of_the_set_is_a_number_that_spells_it_again():
    facts = SetFacts()
    frame = facts.of(prompt_facts(prompts("one", None, family=["Opener 3", None])))

    assert prompt_id_of("one") == facts.id_of(frame["prompt_id"][0])
    assert "Opener 3" == facts.id_of(frame["family"][0])
    assert [False, True] == frame["family"].isna().tolist()


def test_facts_of_the_set_take_at_most_fifty_bytes_a_row():
    texts = [f"what of number {number}" for number in range(1000)]
    ids = [prompt_id_of(text) for text in texts]
    frame = SetFacts().of(prompt_facts(prompts(*texts, prompt_id=ids, family=ids)))

    assert frame.memory_usage(deep=True, index=False).sum() < 50 * len(frame)


def test_a_split_that_is_none_of_ours_stays_as_it_is():
    frame = SetFacts().of(prompt_facts(prompts("one", "two", split=["train", "other"])))

    assert ["train", "other"] == frame["split"].tolist()


def test_a_whole_tree_breaks_no_rule(frame):
    facts = rollout_facts(frame)

    rules = facts.filter(regex="matches|known|fits|valid|is_mean|finite")
    assert 9 == rules.shape[1]
    assert bool(rules.all(axis=None))
    assert [0.0] * 3 == facts["failed"].tolist() == facts["truncated"].tolist()
    assert [0.5, 0.0, 0.25] == facts["score"].tolist()


def test_lists_become_their_sizes_and_ends(frame):
    first = rollout_facts(frame).iloc[0]

    assert (2, 2, 2) == (first.num_probe_ids, first.num_probe_logprobs, first.num_probe_mask)
    assert (0, 2) == (first.min_probe_id, first.max_probe_id)
    assert (1, 1, len("no")) == (
        first.num_responses,
        first.num_response_scores,
        first.response_characters,
    )


# A column, what stands in it in the second row, and the fact that says so.
BROKEN = [
    ("depth", 2, "depth_matches"),
    ("parent", "0", "parent_matches"),
    ("parent", "9", "parent_known"),
    ("reference_logprobs", [-1.0], "reference_fits"),
    ("probe_logprobs", [-1.0, 0.5, -1.0], "logprobs_valid"),
    ("probe_logprobs", [-1.0, math.nan, -1.0], "logprobs_valid"),
    ("reference_logprobs", [-1.0, -math.inf, -1.0], "logprobs_valid"),
    ("target_logprobs", [0.1], "target_logprobs_valid"),
    ("response_scores", [1.5], "scores_valid"),
    ("response_scores", [-0.1], "scores_valid"),
    ("response_scores", [math.nan], "scores_valid"),
    ("response_scores", [], "score_is_mean"),
    ("response_scores", [0.0, 0.5], "score_is_mean"),
    ("score", math.nan, "score_is_mean"),
    ("reward", math.inf, "reward_finite"),
    ("reward", math.nan, "reward_finite"),
]


@pytest.mark.parametrize(("column", "value", "fact"), BROKEN)
def test_a_cell_that_breaks_a_rule_is_found_in_its_row(frame, column, value, fact):
    found = rollout_facts(with_cell(frame, 1, column, value))[fact]

    assert [True, False, True] == found.tolist()


@pytest.mark.parametrize(
    ("column", "value", "fact"),
    [
        # A reference that was not asked, rounding above log 1, and a mean of two replies.
        ("reference_logprobs", [], "reference_fits"),
        ("probe_logprobs", [1e-7, -1.0, 0.0], "logprobs_valid"),
        ("response_scores", [0.0, 1.0], "scores_valid"),
        ("response_scores", [5e-7], "score_is_mean"),
        ("target_logprobs", [], "target_logprobs_valid"),
    ],
)
def test_a_cell_at_the_edge_of_a_rule_keeps_it(frame, column, value, fact):
    assert rollout_facts(with_cell(frame, 1, column, value))[fact].all()


@pytest.mark.parametrize("absent", [None, math.nan])
def test_an_absent_list_is_an_empty_one(frame, absent):
    columns = [
        *("probe_ids", "probe_logprobs", "probe_mask", "reference_logprobs"),
        *("target_logprobs", "response_texts", "response_scores"),
    ]
    for column in columns:
        frame = with_cell(frame, 1, column, absent)
    row = rollout_facts(frame).iloc[1]

    sizes = row.filter(regex="^num_|characters")
    assert {0} == set(sizes)
    assert (0, 0) == (row.min_probe_id, row.max_probe_id)
    assert not row.score_is_mean


def test_a_failed_and_a_shortened_turn_are_numbers(frame):
    changed = with_cell(with_cell(frame, 1, "failure", "TargetError: x"), 2, "truncated_tokens", 4)
    facts = rollout_facts(changed)

    assert [0.0, 1.0, 0.0] == facts["failed"].tolist()
    assert [0.0, 0.0, 1.0] == facts["truncated"].tolist()


def test_a_parent_counts_only_in_its_own_tree(frame):
    other = frame.assign(iteration=1).iloc[[2]]
    facts = rollout_facts(pd.concat([frame, other]))

    assert [True, True, True, False] == facts["parent_known"].tolist()
    assert list(range(4)) == facts.index.tolist()


def test_blanks_are_no_characters_of_a_reply(frame):
    facts = rollout_facts(with_cell(frame, 1, "response_texts", np.array(["  ", " a b\n"])))

    assert (2, 3) == (facts.loc[1, "num_responses"], facts.loc[1, "response_characters"])


def test_no_fact_holds_a_text(frame):
    facts = rollout_facts(frame.assign(probe_text="unspeakable"))

    assert "unspeakable" not in facts.to_csv()
    assert not any(isinstance(cell, list | np.ndarray) for cell in facts.to_numpy().flat)


@pytest.mark.parametrize("column", ROLLOUT_COLUMNS)
def test_a_column_that_is_missing_is_named(frame, column):
    with pytest.raises(DataError, match=rf"got none called \['{column}'\]; collect again"):
        rollout_facts(frame.drop(columns=column))


def test_no_turns_are_no_facts(frame):
    assert 0 == len(rollout_facts(frame.iloc[:0]))


def test_runs_of_a_prompt_are_trees_of_their_own(tmp_path):
    graphs = [
        tiny_graph(tiny_node(0.5, tiny_node(0.25)), prompt=prompt)
        for prompt in runs_of(tiny_prompts(1), 2)
    ]
    write_rollouts(graphs, tmp_path / "r.parquet")
    (table,) = rollout_tables(tmp_path / "r.parquet")
    frame = table.to_pandas()
    facts = rollout_facts(frame)

    assert facts["parent_known"].all()
    assert 4 == facts["row_id"].nunique()
    # Without its first turn, the second run's second turn follows nothing of its own tree.
    orphaned = frame[(frame["run_id"] == 0) | (frame["path"] != "0")]
    assert [True, True, False] == rollout_facts(orphaned)["parent_known"].tolist()

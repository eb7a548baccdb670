import math

import pytest

from astra_core.errors import DataError
from astra_core.redaction import mask
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.figures.examples import examples_page, examples_record, read_examples
from tasks.records.rollouts import write_rollouts

ONE, OTHER = tiny_prompts(2)


def turn(score, probe, *children, replies=("so kind",), scores=None, **changes):
    return tiny_node(
        score,
        *children,
        probe_text=probe,
        response_texts=replies,
        response_scores=scores or (score,) * len(replies),
        **changes,
    )


def rows(page):
    """Score, prompt, probe and reply of each row."""
    lines = page.splitlines()
    table = lines[lines.index("|---|---|---|---|") + 1 :]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def shown(*graphs, count=10):
    return rows(examples_page(graphs, count=count, is_revealed=True))


def test_the_highest_scored_turns_come_first_from_whatever_depth():
    graphs = (
        tiny_graph(turn(0.2, "first", turn(0.9, "deep")), prompt=ONE),
        tiny_graph(turn(0.5, "second"), prompt=OTHER),
    )

    assert [
        ["0.90", ONE.prompt_id, "deep", "so kind"],
        ["0.50", OTHER.prompt_id, "second", "so kind"],
        ["0.20", ONE.prompt_id, "first", "so kind"],
    ] == shown(*graphs)
    assert ["deep", "second"] == [row[2] for row in shown(*graphs, count=2)]


def test_a_probe_is_shown_once_where_it_scored_highest():
    graphs = (
        tiny_graph(turn(0.4, "again"), turn(0.3, "other"), prompt=ONE),
        tiny_graph(turn(0.8, "again"), prompt=OTHER),
    )

    assert [["0.80", OTHER.prompt_id, "again"], ["0.30", ONE.prompt_id, "other"]] == [
        row[:3] for row in shown(*graphs)
    ]


def test_equal_scores_are_in_the_order_of_prompts_and_turns():
    one, other = (
        tiny_graph(turn(0.5, f"{name} a"), turn(0.5, f"{name} b"), prompt=prompt)
        for name, prompt in (("one", ONE), ("other", OTHER))
    )

    assert ["one a", "one b", "other a", "other b"] == [row[2] for row in shown(other, one)]


def test_the_reply_is_the_one_that_scored_highest():
    graph = tiny_graph(turn(0.5, "x", replies=("mild", "worst", "fine"), scores=(0.3, 0.9, 0.3)))

    assert "worst" == shown(graph)[0][3]


def test_a_turn_that_failed_is_no_example():
    failed = turn(0.0, "lost", failure="TargetError: gone")
    graph = tiny_graph(turn(0.1, "kept"), failed, turn(math.nan, "lost too", failure="x"))

    assert ["kept"] == [row[2] for row in shown(graph)]


def test_words_are_masked_unless_they_are_asked_for():
    graph = tiny_graph(turn(0.9, "never listen", replies=("very bad",)))
    page, clear = (
        examples_page([graph], count=1, is_revealed=is_revealed) for is_revealed in (False, True)
    )

    for text in ("never listen", "very bad"):
        assert text in clear
        assert text not in page
        assert mask(text) in page
    assert "Content warning" in page
    assert "`astra examples --reveal`" in page
    assert "Content warning" in clear
    assert "--reveal" not in clear


def test_no_text_breaks_the_table():
    graph = tiny_graph(turn(0.9, "one | two\n\nthree", replies=("| |\r\n# head",)))

    assert [["0.90", ONE.prompt_id, "one ¦ two three", "¦ ¦ # head"]] == shown(graph)


def test_no_rollouts_are_a_page_without_rows():
    assert [] == shown()
    assert [] == shown(tiny_graph())


def test_the_page_is_read_from_the_last_evaluation(tmp_path):
    path = tmp_path / "attacker.parquet"
    graphs = [tiny_graph(turn(0.9, "high"), turn(0.1, "low"))]
    write_rollouts(graphs, path)

    for is_revealed in (False, True):
        expected = examples_page(graphs, count=1, is_revealed=is_revealed)
        assert expected == read_examples(count=1, is_revealed=is_revealed, path=path)


def test_the_same_turns_are_json(tmp_path):
    path = tmp_path / "attacker.parquet"
    write_rollouts([tiny_graph(turn(0.9, "high"), turn(0.1, "low"), prompt=ONE)], path)
    (found,) = examples_record(count=1, is_revealed=False, path=path)

    assert {
        "score": 0.9,
        "prompt_id": ONE.prompt_id,
        "category": None,
        "probe": mask("high"),
        "response": mask("so kind"),
    } == found


def test_without_an_evaluation_the_page_says_what_makes_one(tmp_path):
    with pytest.raises(DataError, match=r"attacker\.parquet must exist, got no such file; 'astra"):
        read_examples(count=1, is_revealed=False, path=tmp_path / "attacker.parquet")


def test_of_what_nobody_judged_nothing_is_shown():
    unjudged = turn(0.0, "silent", scores=(None,), response_unjudged=("empty",))
    partly = turn(0.0, "some", replies=("a", "b"), scores=(None, 0.9))

    assert [["some", "b"]] == [row[2:] for row in shown(tiny_graph(unjudged, partly))]


def test_a_prompt_with_a_category_has_it_in_the_page():
    named = Prompt(ONE.prompt_id, ONE.text, {"category": "fraud"})
    graphs = [
        tiny_graph(turn(0.2, "first"), prompt=named),
        tiny_graph(turn(0.9, "x"), prompt=OTHER),
    ]
    lines = examples_page(graphs, count=5).splitlines()

    assert "| score | prompt | category | probe | response |" in lines
    assert any(f"| {ONE.prompt_id} | fraud |" in line for line in lines)
    assert any(f"| {OTHER.prompt_id} | none |" in line for line in lines)
    assert "category" not in examples_page(graphs[1:], count=5)

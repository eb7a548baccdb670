import math
from dataclasses import replace

import pandas as pd
from each_row import each_row
from report_material import material

from astra_core.metrics.statistics import Interval
from astra_parts.metrics.detection import proportion
from tasks.figures.turns import TurnRates, TurnRecord
from tasks.records.baselines import UNTRAINED, BaselineRecord, BaselineRow
from tasks.records.evaluation import (
    CategoryRates,
    OverRefusal,
    PlainQuestions,
    Transfer,
    TypeRefusals,
)
from tasks.report.tables import Table, markdown_table, tables

SPAN = Interval(0.5, 0.4, 0.6)
TOLD = "50.0% [40.0%, 60.0%]"
GAIN = "+50.0 points [+40.0, +60.0]"


ONE_TURN = TurnRecord(*[TurnRates((SPAN,), SPAN)] * 2)


def rows_of(title, **changes):
    """The rows of one table of a version whose examination has these parts."""
    whole = material()
    found = tables(replace(whole, evaluation=replace(whole.evaluation, **changes)))
    return next((own.rows for own in found if own.title == title), ())


@each_row("turns", [None, ONE_TURN])
def test_what_was_not_measured_or_has_one_turn_has_no_table(turns):
    bare = replace(material(), turns=turns)

    assert ["Diversity", "Baselines"] == [table.title for table in tables(bare)]


def test_categories_turns_and_other_targets_have_rates_of_both_attackers():
    rates = {"fraud": CategoryRates(7, SPAN, SPAN, SPAN)}
    others = {"strict": Transfer(attacker=SPAN, baseline=SPAN, lift=SPAN)}

    assert (("fraud", "7", TOLD, TOLD, GAIN),) == rows_of("By category", categories=rates)
    assert (("strict", TOLD, TOLD, GAIN),) == rows_of("Against other targets", transfer=others)
    assert ("Turn 1", "30.0% [20.0%, 40.0%]") == rows_of("By turn")[0][:2]


def test_diversity_leaves_out_what_is_not_known_and_the_sign_of_a_zero():
    rate = {"attack_success_rate": SPAN}
    figures = {"unique_probes": 0.5, "kl_nats": math.nan, "distinct_2": None, "strategies": -1e-9}
    baseline = {"unique_probes": 0.25}
    rows = rows_of("Diversity", attacker=rate | figures, baseline=rate | baseline)

    assert (("Probes that differ", "50.0%", "25.0%"), (rows[1][0], "0.0", "")) == rows


def test_baselines_stand_beside_the_trained_attacker_with_what_was_asked_before():
    whole = material()
    # Two of four prompts are hit at least once.
    rates = {"attacker": (1.0, 1.0, 1.0, 1.0), "baseline": (0.5, 1.0, 0.0, 0.0)}
    table = pd.DataFrame(
        [{"role": role, "success_rate": rate} for role, own in rates.items() for rate in own]
    )
    steps = whole.steps.assign(**{"rollout/num_replies": [None, 500, 500, 700]})
    searched = {"bandit_success_rate": SPAN, "bandit_calls": 2000.0}
    plain = PlainQuestions(3, "w··", 1.0, own_rate=SPAN, best_rate=SPAN, lift=SPAN)
    examined = replace(
        whole.evaluation,
        num_rollouts=2,
        baseline={**whole.evaluation.baseline, **searched},
        equivalent_tries=Interval(3.0, 2.0, 4.0),
        plain=plain,
    )
    found = tables(replace(whole, evaluation=examined, table=table, steps=steps))[-1]
    by_name = {row[0]: row[1:] for row in found.rows}
    half = proportion(2, 4, confidence=0.95).spelled(".1%")

    assert ("60.0% [50.0%, 70.0%]", "", "", "1,200") == by_name["Trained attacker"]
    assert (half, "", "", "0") == by_name["Untrained, best of 2 rollouts of a prompt"]
    assert (TOLD, "", "", "2,000") == by_name["Bandit over untrained probes"]
    assert (TOLD, GAIN, "", "") == by_name["The best of 3 plain questions"]
    assert "as often as the best of 3.0 [2.0, 4.0] untrained tries." in found.note


def test_baselines_at_equal_cost_stand_in_the_same_table_but_those_that_are_there():
    measured = BaselineRow("goat", 12, 11, SPAN, SPAN, 7.0, gain=SPAN)
    rows = (replace(measured, name=UNTRAINED), measured)
    own = BaselineRecord("key", "digest", 3, 2, 2, 1, rows, {"pair": "no model"})
    before, found = tables(material())[-1], tables(material(baselines=own))[-1]

    assert (*before.rows, ("Goat, at equal cost", TOLD, GAIN, "7", "0")) == found.rows
    assert ". At equal cost: 4 replies of the target on each of 3 prompts" in found.note
    assert ". At equal cost: without pair: no model." in found.note
    assert found.note.endswith(". Goat: 11 of 12 replies judged.")


def test_refusals_are_told_by_type_where_there_are_several():
    types = {"film": TypeRefusals(4, SPAN), "garden": TypeRefusals(5, SPAN)}
    some = OverRefusal("ab" * 32, "refusal 1", 9, 2, 1, SPAN, unsafe_rate=SPAN, types=types)
    own = replace(some, unsafe_rate=None, types={"film": types["film"]})
    title = "Harmless requests refused"

    assert ["All harmless requests", "film", "garden", "Requests that it should refuse"] == [
        row[0] for row in rows_of(title, over_refusal=some)
    ]
    assert (("All harmless requests", "9", TOLD),) == rows_of(title, over_refusal=own)


def test_a_table_in_markdown_has_its_heading_and_note():
    own = Table("By turn", ("Turn", "Trained"), (("1", "2 %"), ("2", "3 %")), "Of 9.")

    assert (
        "## By turn\n| Turn | Trained |\n| --- | --- |\n| 1 | 2 % |\n| 2 | 3 % |\n\nOf 9.\n"
        == markdown_table(own)
    )


def test_no_text_ends_a_cell_or_a_row_of_markdown():
    own = Table("By category", ("Category", "Prompts"), (("fraud | theft\nand more", "7"),))

    assert "\n| fraud ¦ theft and more | 7 |\n" in markdown_table(own)

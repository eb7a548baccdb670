import json
import math
from dataclasses import replace

import pytest
from each_row import each_row
from registry_project import examined, measured

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import (
    CategoryRates,
    Transfer,
    flat_figures,
    read_evaluation,
    transfers_told,
    worth_told,
)
from tasks.records.reports import write_record


def test_a_record_survives_its_file(tmp_path):
    write_record(examined().to_record(), tmp_path / "e.json")

    assert examined() == read_evaluation(tmp_path / "e.json")
    assert examined().to_record() == json.loads((tmp_path / "e.json").read_text())


def test_intervals_and_figures_have_the_form_they_had(tmp_path):
    write_record(examined(rate=0.5), tmp_path / "e.json")
    written = json.loads((tmp_path / "e.json").read_text())

    assert measured(0.5) == written["attacker"]
    assert {"value", "low", "high"} == set(written["lift"])


def test_an_interval_of_no_number_is_null_and_comes_back(tmp_path):
    unknown = {**examined().attacker, "score_mean": Interval(math.nan, math.nan, math.nan)}
    write_record(replace(examined(), attacker=unknown), tmp_path / "e.json")
    found = read_evaluation(tmp_path / "e.json").attacker["score_mean"]

    assert math.isnan(found.value)
    assert "NaN" not in (tmp_path / "e.json").read_text()


@each_row(
    ("change", "words"),
    [
        ({"depth": None}, "must hold depth, got NoneType in its place"),
        ({"lift": {"value": 0.5}}, "must hold lift"),
        ({"attacker": 5}, "must hold attacker.attack_success_rate.value, got a report without"),
        ({"baseline": {}}, "must hold baseline.attack_success_rate.value, got a report without"),
    ],
)
def test_an_old_or_damaged_record_is_one_line(tmp_path, change, words):
    (tmp_path / "e.json").write_text(json.dumps(examined().to_record() | change))

    with pytest.raises(DataError, match=words) as refusal:
        read_evaluation(tmp_path / "e.json")
    assert 1 == len(str(refusal.value).splitlines())


def test_final_figures_tell_the_attackers_apart():
    figures = examined(rate=0.6, baseline=0.2).final_figures()

    assert (0.6, 0.2) == tuple(
        figures[f"{area}/attack_success_rate"] for area in ("final", "baseline")
    )
    assert (0.4, 0.3, 0.5) == pytest.approx(
        tuple(figures[f"final/lift{end}"] for end in ("", "_low", "_high"))
    )
    # Two rates with their ends and three figures of each, and the lift with its ends.
    assert 2 * (2 * 3 + 10) + 3 == len(figures)


@each_row("rate, against", [(0.5, ", more often"), (0.9, ""), (1.0, ", less often")])
def test_what_a_bandit_reaches_stands_in_words_beside_the_worth(rate, against):
    span = Interval(0.9, 0.85, 0.95)
    bandit = {"success_rate": span, "probes": 1170.0, "calls": 5824.0}
    figures = {f"bandit_{name}": value for name, value in bandit.items()}
    figures["bandit_unique_attacks_per_1000_replies"] = 40.0
    own = replace(examined(), equivalent_tries=Interval(3.5, 2.9, 4.4))
    own = replace(own, attacker={**own.attacker, "attack_success_rate": Interval(rate, rate, rate)})

    assert "bandit" not in worth_told(own)
    told = worth_told(replace(own, baseline={**own.baseline, **figures}))
    against = f"{against} than the trained attacker" if against else ""
    assert told.endswith(
        f"; a bandit over 1,170 untrained probes succeeds in 90.0% [85.0%, 95.0%]{against}, after "
        "5,824 replies, 40 different hits of 1,000"
    )


def test_an_interval_is_flat_whether_it_was_read_or_not():
    read = dict(flat_figures("eval", {"rate": Interval(0.5, 0.4, 0.6), "n": None}))

    assert {"eval/rate": 0.5, "eval/rate_low": 0.4, "eval/rate_high": 0.6, "eval/n": None} == read
    assert read == dict(flat_figures("eval", {"rate": Interval(0.5, 0.4, 0.6).record(), "n": None}))


def test_a_rate_that_is_no_interval_is_refused():
    without = replace(examined(), baseline={"attack_success_rate": 0.5})

    with pytest.raises(DataError, match="baseline must have an interval of attack_success_rate"):
        without.rate("baseline")


def test_categories_survive_the_file_and_are_left_out_where_there_are_none(tmp_path):
    span = Interval(0.5, 0.25, 0.75)
    record = replace(examined(), categories={"fraud": CategoryRates(3, span, span, span)})
    write_record(record.to_record(), tmp_path / "e.json")
    written = json.loads((tmp_path / "e.json").read_text())

    assert record == read_evaluation(tmp_path / "e.json")
    rates = written["categories"]["fraud"]
    assert {"num_prompts", "attacker", "baseline", "lift"} == set(rates)
    assert {"value": 0.5, "low": 0.25, "high": 0.75} == rates["lift"]
    assert "categories" not in examined().to_record()


def test_a_transfer_without_a_judged_reply_says_so():
    none, some = Interval(math.nan, math.nan, math.nan), Interval(0.5, 0.4, 0.6)
    others = {"strict": Transfer(none, some, none), "lax": Transfer(some, some, some)}
    told = transfers_told(others)

    assert told.startswith("strict 50.0% [40.0%, 60.0%] -> none judged, gain not known; lax 50.0%")

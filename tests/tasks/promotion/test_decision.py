"""The gate between candidate and champion: what moves, what is refused, what a kill leaves."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from decisions import PARAMS, aliases, fought, promote, register_another, tags
from registry_project import (
    EVALUATION_KEY,
    Killed,
    killed_after,
    prompt_table,
    register,
    write_checkpoint,
    write_reports,
)
from sqlalchemy import event

from astra_core.errors import DataError
from astra_core.metrics.statistics import paired_gain
from astra_core.rollout import Prompt
from tasks.machine.scratch import SCRATCH
from tasks.promotion.decision import promote_attacker
from tasks.tracking.errors import StoreError, TrackingError
from tasks.tracking.lineage.chronicle import version_summaries
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


def no_evaluation(folder, _):
    pytest.fail(f"nothing had to be examined again, got {folder}")


def no_draw(number):
    pytest.fail(f"no prompts had to be drawn, got duel {number}")


def test_the_first_candidate_must_beat_the_untrained_attacker(project):
    decision = promote(evaluate=no_evaluation, draw=no_draw)

    assert decision.promoted
    assert decision.changed
    assert aliases() == {"candidate": "1", "champion": "1"}
    assert pytest.approx(0.4) == decision.comparison.gain
    assert tags("1")["promotion.decision"] == "promoted"
    assert tags("1")["promotion.reasons"].startswith("gain +40.0 points (95% interval")
    assert decision.summary().startswith("attacker version 1 is champion: gain +40.0 points")


def test_a_candidate_no_better_than_the_untrained_attacker_is_refused(project):
    register_another(project, 1, rate=0.2, baseline=0.2)

    decision = promote()

    assert not decision.promoted
    assert decision.changed
    assert not promote().changed
    assert aliases() == {"candidate": "2"}
    assert tags("2")["promotion.decision"] == "refused"
    assert decision.reasons[0].startswith("gain must lie above 0 points beyond chance, got gain +0")
    assert tags("2")["promotion.reasons"] == decision.reasons[0]
    assert decision.summary().startswith("attacker version 2 is not promoted: gain must")


def test_a_better_candidate_that_was_registered_replaces_the_champion(project_on_disk):
    promote()
    write_checkpoint(project_on_disk / "models" / "attacker", seed=1)
    write_reports(project_on_disk, run_key="0001" * 16, rate=0.9)
    register()
    assert promote().promoted
    assert aliases() == {"candidate": "2", "champion": "2", "previous": "1"}


def test_a_better_candidate_replaces_the_champion_and_no_folder_is_left(
    championed, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    register_another(championed, 1, rate=0.9)

    decision = promote()

    assert decision.promoted
    assert aliases() == {"candidate": "2", "champion": "2", "previous": "1"}
    assert decision.champion_version == "2"
    assert decision.previous_version == "1"
    assert pytest.approx(0.3) == decision.comparison.gain
    assert [] == [*tmp_path.iterdir(), *SCRATCH.iterdir()]


@pytest.mark.wide
def test_a_month_of_nights_ends_with_a_readable_history(championed):
    rates = {night: 1.0 if night == 20 else 0.6 for night in range(30)}
    for night in range(1, 30):
        register_another(championed, night, rate=rates[night])
        promote(evaluate=fought(rates))

    month = version_summaries(connect(), "attacker")
    assert [str(number) for number in range(30, 0, -1)] == [each.version for each in month]
    promoted = {each.version for each in month if each.decision == "promoted"}
    assert {"1", "21"} == promoted
    assert {"refused"} == {each.decision for each in month if each.version not in promoted}
    assert all("in duel" in each.reasons for each in month)
    assert {"candidate": "30", "champion": "21", "previous": "1"} == aliases()


def test_a_decision_reads_no_more_of_a_long_history_than_of_a_short_one(championed):
    from mlflow.store.db.base_sql_model import Base

    rows, counts = [], []

    def note(row, _):
        # Their tags say which prompts each version knows, so that a duel's are new to all.
        if not type(row).__name__.startswith("SqlModelVersion"):
            rows.append(row)

    event.listen(Base, "load", note, propagate=True)
    for night in range(1, 7):
        register_another(championed, night)
        rows.clear()
        assert not promote(evaluate=fought(dict.fromkeys(range(7), 0.6))).promoted
        counts.append(len(rows))
    event.remove(Base, "load", note)

    assert 0 < counts[1] == counts[-1], counts


def test_a_worse_candidate_leaves_the_champion(championed):
    register_another(championed, 1, rate=0.5)

    decision = promote(evaluate=fought({0: 0.6, 1: 0.5}))

    assert not decision.promoted
    assert decision.champion_version == "1"
    assert aliases() == {"candidate": "2", "champion": "1"}


def test_a_candidate_that_repeats_itself_is_refused(project):
    register_another(project, 1, rate=0.9, unique_probes_rarefied=0.3, distinct_2_rarefied=0.1)

    decision = promote()

    assert not decision.promoted
    names = [reason.split(" ")[0] for reason in decision.reasons]
    assert ["unique_probes_rarefied", "distinct_2_rarefied"] == names
    rules = json.loads(tags("2")["promotion.rules"])
    assert names == [rule["name"] for rule in rules if rule["held"] is False]
    assert 2 < len(rules)


CONFIRMING = PARAMS.model_copy(
    update={"promotion": PARAMS.promotion.model_copy(update={"require_confirmation": True})}
)


def confirmed(project, *, attacker, baseline):
    """Registers a candidate of which a second judge confirms these rates."""
    second = prompt_table(rate=attacker, baseline=baseline).success_rate
    table = prompt_table(rate=0.6, baseline=0.2).assign(confirmed_success_rate=second)
    register_another(project, 1, table=table)


def test_success_that_nobody_confirms_is_refused_in_words(project):
    decision = promote_attacker(CONFIRMING, evaluate=no_evaluation)

    assert not decision.promoted
    (reason,) = decision.reasons
    assert (
        "promotion.require_confirmation must find success that a second judge confirms, got an "
        "evaluation without one; name evaluation.second_judge and run again"
    ) == reason
    assert tags("1")["promotion.decision"] == "refused"
    (row,) = json.loads(tags("1")["promotion.rules"])
    assert ("second judge", False) == (row["name"], row["held"])
    assert promote().promoted


def test_success_counts_where_both_judges_see_it(project):
    confirmed(project, attacker=0.2, baseline=0.2)
    refused = promote_attacker(CONFIRMING, evaluate=no_evaluation)

    assert not refused.promoted
    assert refused.reasons[0].startswith("gain must lie above 0 points beyond chance, got gain +0")
    assert "success counts where both judges saw it" == refused.reasons[-1]
    # What the first judge alone sees would do.
    assert promote().promoted


def test_a_confirmed_gain_is_promoted(project):
    confirmed(project, attacker=0.5, baseline=0.2)
    decision = promote_attacker(CONFIRMING, evaluate=no_evaluation)

    assert decision.promoted
    assert pytest.approx(0.3) == decision.comparison.gain
    assert "success counts where both judges saw it" == decision.reasons[-1]


def test_promoting_the_champion_again_changes_nothing(project):
    first = promote()
    before = (aliases(), tags("1"))

    again = promote()

    assert again.promoted
    assert not again.changed
    assert first.reasons == again.reasons
    assert before == (aliases(), tags("1"))


def test_a_duel_is_of_fresh_prompts_and_fought_once(championed):
    register_another(championed, 1)
    seen, drawn = [], []

    def draw(number):
        drawn.append(number)
        return [Prompt(f"p{number}", "why now")]

    means = {"evaluate": fought({0: 0.6, 1: 0.6}, seen), "draw": draw}
    first, again = promote(**means), promote(**means)

    # The first duel was that with the untrained attacker.
    assert [2] == drawn
    assert [(1, ["p2"]), (0, ["p2"])] == seen
    assert not first.promoted
    assert first.reasons == again.reasons
    assert first.comparison == again.comparison
    assert "duel 2 of 30" in first.reasons[0]


def test_an_equal_candidate_of_far_more_strategies_becomes_champion(championed):
    register_another(championed, 1)
    even = [[number % 12, (number + 5) % 12, (number + 2) % 12] for number in range(40)]
    strategies = {0: [[0, 0, 0]] * 40, 1: even}
    # Forty prompts are too few to show a smaller loss.
    lax = PARAMS.promotion.model_copy(update={"max_loss": 0.2})

    decision = promote_attacker(
        PARAMS.model_copy(update={"promotion": lax}),
        evaluate=fought({0: 0.6, 1: 0.6}, strategies=strategies),
        draw=lambda number: [Prompt(f"p{number}", "why now")],
    )

    assert decision.promoted
    assert "strategies" in decision.reasons[0]


def test_a_candidate_outside_the_bands_has_no_duel(championed):
    register_another(championed, 1, top_strategy_share=0.6, kl_nats=33.0)

    decision = promote(evaluate=no_evaluation)

    names = [reason.split(" ")[0] for reason in decision.reasons]
    assert ["top_strategy_share", "kl_nats"] == names
    assert "promotion.duel" not in tags("2")
    assert decision.comparison is None


def test_every_duel_has_a_number_of_its_own_even_after_one_was_lost(championed):
    register_another(championed, 1)
    with pytest.raises(Killed):
        promote(client=killed_after(1, of=["set_registered_model_tag"]))
    promote(evaluate=fought({0: 0.6, 1: 0.5}))
    connect().set_registered_model_alias("attacker", "champion", "2")
    register_another(championed, 2)
    promote(evaluate=fought({1: 0.5, 2: 0.5}))

    assert ["1", "3", "4"] == [tags(version)["promotion.duel"] for version in "123"]


def test_rules_that_changed_decide_the_same_duel_again(championed):
    register_another(championed, 1)
    assert not promote(evaluate=fought({0: 0.6, 1: 0.75})).promoted
    lax = PARAMS.promotion.model_copy(update={"family_error": 0.4, "horizon": 2})

    decision = promote_attacker(
        PARAMS.model_copy(update={"promotion": lax}), evaluate=no_evaluation, draw=no_draw
    )

    assert decision.promoted
    assert "2" == tags("2")["promotion.duel"]


def test_the_first_gain_has_the_interval_of_the_evaluation(project):
    table = prompt_table(rate=0.6, baseline=0.2)
    gains = [
        after - before
        for after, before in zip(
            table[table.role == "attacker"].success_rate,
            table[table.role == "baseline"].success_rate,
            strict=True,
        )
    ]
    ids = list(table[table.role == "attacker"].prompt_id)
    found = promote().comparison

    options = {"num_resamples": 10_000, "confidence": 0.95, "seed": PARAMS.training_seed}
    expected = paired_gain(ids, gains, **options)
    assert (expected.value, expected.low, expected.high) == (found.gain, found.low, found.high)


def test_tables_of_other_prompts_are_not_compared(championed):
    register_another(championed, 1)
    tables = iter([prompt_table(rate=0.7, baseline=0.2).query("role == 'attacker'")] * 2)

    def evaluate(*_):
        table = next(tables)
        return {}, table.assign(prompt_id=table["prompt_id"] + str(id(tables) % 7 + len(seen)))

    seen = []

    def counted(*arguments):
        found = evaluate(*arguments)
        seen.append(1)
        return found

    with pytest.raises(DataError, match="must be examined on the same prompts, got 40 and 40"):
        promote(evaluate=counted)


def test_a_candidate_that_does_not_load_is_refused(project):
    for weights in Path("mlruns").rglob("model.safetensors"):
        weights.write_bytes(b"damaged")

    decision = promote()

    assert not decision.promoted
    assert decision.reasons[0].startswith("version 1 must load and write, got")
    assert aliases() == {"candidate": "1"}


def test_a_candidate_whose_files_are_gone_is_refused(project):
    shutil.rmtree(next(Path("mlruns").rglob("MLmodel")).parent)

    decision = promote()

    assert not decision.promoted
    assert "got no such folder" in decision.reasons[0]


def test_a_candidate_without_examination_is_an_error(project):
    shutil.rmtree(next(Path("mlruns").rglob(f"evaluation/{EVALUATION_KEY[:16]}")))

    with pytest.raises(DataError, match="candidate version 1 must have its examination"):
        promote()


def test_promotion_without_a_candidate_says_what_to_do(in_memory):
    with pytest.raises(TrackingError, match="'attacker' must exist, got none; run the stage"):
        promote()

    connect().create_registered_model("attacker")
    with pytest.raises(TrackingError, match=r"alias 'candidate', got aliases \[\]; run the stage"):
        promote()


def test_promotion_without_a_store_is_one_line(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9 must answer"):
        promote()

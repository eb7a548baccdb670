"""The gate between candidate and champion: what moves, what is refused, what a kill leaves."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from registry_project import (
    EVALUATION_KEY,
    Killed,
    enter_project,
    killed_after,
    prompt_table,
    register,
    write_checkpoint,
    write_project,
    write_reports,
)

from astra_core.errors import DataError
from astra_core.metrics.statistics import paired_gain
from astra_core.rollout import Prompt
from tasks.machine.scratch import SCRATCH
from tasks.params.schema import Params
from tasks.promotion.decision import DECISIONS, promote_attacker, rollback
from tasks.stages import registration
from tasks.tracking.errors import StoreError, TrackingError
from tasks.tracking.runs import connect
from tasks.tracking.store import alone_with
from tasks.tracking.versions import aliases_of

PARAMS = Params()
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """A project whose first candidate is registered; each test works in a copy."""
    folder = tmp_path_factory.mktemp("registered")
    with pytest.MonkeyPatch.context() as patch:
        enter_project(folder, patch)
        write_project(folder)
        register()
    return folder


@pytest.fixture
def project(registered, tmp_path, monkeypatch):
    folder = shutil.copytree(registered, tmp_path / "project")
    enter_project(folder, monkeypatch, is_empty=False)
    # Pictures and page of a version are half of its registration, and decide nothing.
    monkeypatch.setattr(registration, "draw_plots", lambda *_, **__: [])
    monkeypatch.setattr(registration, "renew_report", lambda *_, **__: None)
    return folder


def no_evaluation(folder, _):
    pytest.fail(f"nothing had to be examined again, got {folder}")


def no_draw(number):
    pytest.fail(f"no prompts had to be drawn, got duel {number}")


def fought(rates, seen=None, strategies=None):
    """What examines attackers whose checkpoints have these seeds; notes who met which prompts."""

    def evaluate(folder, prompts):
        seed = int(json.loads((folder / "astra.json").read_text())["digest"][:2])
        if seen is not None:
            seen.append((seed, [prompt.prompt_id for prompt in prompts]))
        table = prompt_table(rate=rates[seed], baseline=0.0).query("role == 'attacker'")
        if strategies:
            table = table.assign(hit_strategies=strategies[seed])
        return {}, table

    return evaluate


def promote(**named):
    means = {
        "evaluate": fought({0: 0.6, 1: 0.9, 2: 1.0}),
        "draw": lambda number: [Prompt(f"p{number}", "why now")],
    }
    return promote_attacker(PARAMS, **(means | named))


def register_another(project, seed, **reports):
    """A second candidate, from a checkpoint and a training of its own."""
    write_checkpoint(project / "models" / "attacker", seed=seed)
    write_reports(project, run_key=f"{seed:04d}" * 16, **reports)
    return register()


def aliases():
    return aliases_of(connect(), "attacker")


def tags(version):
    return connect().get_model_version("attacker", version).tags


def test_the_first_candidate_must_beat_the_untrained_attacker(project):
    decision = promote(evaluate=no_evaluation, draw=no_draw)

    assert decision.promoted
    assert decision.changed
    assert aliases() == {"candidate": "1", "champion": "1"}
    assert pytest.approx(0.4) == decision.comparison.gain
    assert tags("1")["promotion.decision"] == "promoted"
    assert tags("1")["promotion.reasons"].startswith("gain +0.400 (95% interval")
    assert decision.summary().startswith("attacker version 1 is champion: gain +0.400")


def test_a_candidate_no_better_than_the_untrained_attacker_is_refused(project):
    register_another(project, 1, rate=0.2, baseline=0.2)

    decision = promote()

    assert not decision.promoted
    assert aliases() == {"candidate": "2"}
    assert tags("2")["promotion.decision"] == "refused"
    assert decision.reasons[0].startswith("gain must lie above 0 beyond chance, got gain +0.000")
    assert tags("2")["promotion.reasons"] == decision.reasons[0]
    assert decision.summary().startswith("attacker version 2 is not promoted: gain must")


def test_a_better_candidate_replaces_the_champion(project):
    promote()
    register_another(project, 1, rate=0.9)

    decision = promote()

    assert decision.promoted
    assert aliases() == {"candidate": "2", "champion": "2", "previous": "1"}
    assert decision.champion_version == "2"
    assert decision.previous_version == "1"
    assert pytest.approx(0.3) == decision.comparison.gain


def test_promotion_leaves_no_folder_behind(project, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    promote()
    register_another(project, 1, rate=0.9)

    assert promote().promoted
    assert [] == list((tmp_path / "tmp").iterdir())
    assert [] == list(SCRATCH.iterdir())


def test_a_worse_candidate_leaves_the_champion(project):
    promote()
    register_another(project, 1, rate=0.5)

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


CONFIRMING = PARAMS.model_copy(
    update={"promotion": PARAMS.promotion.model_copy(update={"require_confirmation": True})}
)


def confirmed(project, *, attacker, baseline):
    """Registers a candidate of which a second judge confirms these rates."""
    write_checkpoint(project / "models" / "attacker", seed=1)
    write_reports(project, run_key="0001" * 16, rate=0.6)
    path = project / "reports/evaluation_prompts.parquet"
    second = prompt_table(rate=attacker, baseline=baseline).success_rate
    table = prompt_table(rate=0.6, baseline=0.2).assign(confirmed_success_rate=second)
    table.to_parquet(path, index=False)
    register()


def test_success_that_nobody_confirms_is_refused_in_words(project):
    decision = promote_attacker(CONFIRMING, evaluate=no_evaluation)

    assert not decision.promoted
    (reason,) = decision.reasons
    assert (
        "promotion.require_confirmation must find success that a second judge confirms, got an "
        "evaluation without one; name evaluation.second_judge and run again"
    ) == reason
    assert tags("1")["promotion.decision"] == "refused"
    assert promote().promoted


def test_success_counts_where_both_judges_see_it(project):
    confirmed(project, attacker=0.2, baseline=0.2)
    refused = promote_attacker(CONFIRMING, evaluate=no_evaluation)

    assert not refused.promoted
    assert refused.reasons[0].startswith("gain must lie above 0 beyond chance, got gain +0.000")
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


def test_a_duel_is_of_fresh_prompts_and_fought_once(project):
    promote()
    register_another(project, 1)
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


def test_an_equal_candidate_of_far_more_strategies_becomes_champion(project):
    promote()
    register_another(project, 1)
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


def test_a_candidate_outside_the_bands_has_no_duel(project):
    promote()
    register_another(project, 1, top_strategy_share=0.6, nonword_probe_rate=0.4, kl_nats=31.0)

    decision = promote(evaluate=no_evaluation)

    names = [reason.split(" ")[0] for reason in decision.reasons]
    assert ["top_strategy_share", "nonword_probe_rate", "kl_nats"] == names
    assert "promotion.duel" not in tags("2")
    assert decision.comparison is None


def test_every_duel_has_a_number_of_its_own_even_after_one_was_lost(project):
    promote()
    register_another(project, 1)
    with pytest.raises(Killed):
        promote(client=killed_after(1, of=["set_registered_model_tag"]))
    promote(evaluate=fought({0: 0.6, 1: 0.5}))
    connect().set_registered_model_alias("attacker", "champion", "2")
    register_another(project, 2)
    promote(evaluate=fought({1: 0.5, 2: 0.5}))

    assert ["1", "3", "4"] == [tags(version)["promotion.duel"] for version in "123"]


def test_rules_that_changed_decide_the_same_duel_anew(project):
    promote()
    register_another(project, 1)
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


def test_tables_of_other_prompts_are_not_compared(project):
    promote()
    register_another(project, 1)
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


def test_promotion_without_a_candidate_says_what_to_do(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)

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


def test_rollback_returns_to_the_champion_before(project):
    promote()
    register_another(project, 1, rate=0.9)
    promote()

    undone = rollback("attacker")

    assert undone.summary() == "attacker version 1 is champion again instead of 2"
    assert aliases() == {"candidate": "2", "champion": "1"}
    assert tags("2")["promotion.decision"] == "rolled_back"


def test_a_version_that_was_rolled_back_is_not_promoted_again(project):
    """A schedule would otherwise undo the rollback within the hour."""
    promote()
    register_another(project, 1, rate=0.9)
    promote()
    rollback("attacker")

    refused = promote()

    assert not refused.promoted
    assert "version 2 was rolled back" in refused.reasons[0]

    connect().delete_model_version_tag("attacker", "2", "promotion.decision")
    assert promote().promoted


def test_rollback_goes_back_more_than_one_promotion(project):
    rates = fought({0: 0.3, 1: 0.65, 2: 1.0})
    promote(evaluate=rates)
    register_another(project, 1)
    promote(evaluate=rates)
    register_another(project, 2)
    promote(evaluate=rates)

    assert rollback("attacker").previous_version == "1"
    assert rollback("attacker").champion_version == "1"
    assert aliases() == {"candidate": "3", "champion": "1"}


def test_rollback_without_anything_to_go_back_to_is_an_error(project):
    with pytest.raises(TrackingError, match=r"alias 'champion'.*; promote a candidate first"):
        rollback("attacker")

    promote()
    with pytest.raises(TrackingError, match=r"alias 'previous'.*; there is nothing to go back to"):
        rollback("attacker")
    with pytest.raises(TrackingError, match="registered model 'other' must exist"):
        rollback("other")


@pytest.mark.slow
def test_a_promotion_killed_at_any_write_is_completed_by_the_next(project):
    promote()
    register_another(project, 1, rate=0.9)
    num_writes = 0
    deaths = 0
    while deaths == num_writes:
        num_writes += 1
        deaths += dies(lambda n=num_writes: promote(client=killed_after(n)))
        assert aliases()["champion"] in {"1", "2"}

        promote()

        assert aliases() == {"candidate": "2", "champion": "2", "previous": "1"}
        assert tags("2")["promotion.decision"] == "promoted"
        unpromote()

    # Five tags of the duel, two tags, two aliases, one tag, and the round that lived.
    assert num_writes == 11


@pytest.mark.slow
def test_a_rollback_killed_at_any_write_is_completed_by_the_next(project):
    promote()
    register_another(project, 1, rate=0.9)
    num_writes = 0
    deaths = 0
    while deaths == num_writes:
        num_writes += 1
        promote()
        has_died = dies(lambda n=num_writes: rollback("attacker", client=killed_after(n)))
        deaths += has_died
        if has_died and "previous" in aliases():
            rollback("attacker")

        assert aliases() == {"candidate": "2", "champion": "1"}
        assert tags("2")["promotion.decision"] == "rolled_back"
        connect().delete_model_version_tag("attacker", "2", "promotion.decision")

    assert num_writes == 4  # One tag, two aliases, and the round that lived.


def test_a_promotion_killed_before_the_champion_moved_can_be_rolled_back(project):
    promote()
    register_another(project, 1, rate=0.9)
    dies(lambda: promote(client=killed_after(1, of=["set_registered_model_alias"])))
    assert aliases() == {"candidate": "2", "champion": "1", "previous": "1"}

    rollback("attacker")

    assert aliases() == {"candidate": "2", "champion": "1"}


def dies(act):
    try:
        act()
    except Killed:
        return True
    return False


def unpromote():
    """The registry as it was before version 2 was promoted."""
    client = connect()
    client.set_registered_model_alias("attacker", "champion", "1")
    client.delete_registered_model_alias("attacker", "previous")
    decided = ("promotion.decision", "promotion.reasons", "promotion.previous")
    for key in (*decided, "promotion.duel", "promotion.opponent", "promotion.outcome"):
        client.delete_model_version_tag("attacker", "2", key)


@pytest.mark.slow
def test_of_two_that_decide_at_once_the_second_waits(project):
    with alone_with(DECISIONS):
        code = "from tasks.promotion.decision import rollback; rollback('nobody')"
        second = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(4)
    _, said = second.communicate(timeout=120)

    assert "nobody" in said.splitlines()[-1]

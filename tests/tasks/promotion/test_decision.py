"""The gate between candidate and champion: what moves, what is refused, what a kill leaves."""

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
    measured,
    prompt_table,
    register,
    write_checkpoint,
    write_project,
    write_reports,
)

from astra_core.errors import DataError
from tasks.machine.scratch import SCRATCH
from tasks.params.schema import Params
from tasks.promotion.decision import DECISIONS, promote_attacker, rollback
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
    return folder


@pytest.fixture
def project(registered, tmp_path, monkeypatch):
    folder = shutil.copytree(registered, tmp_path / "project")
    enter_project(folder, monkeypatch)
    register()
    return folder


def no_evaluation(folder):
    pytest.fail(f"nothing had to be examined again, got {folder}")


def promote(**named):
    return promote_attacker(PARAMS, **({"evaluate": no_evaluation} | named))


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
    decision = promote()

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
    assert decision.reasons[0].startswith("lower end of the gain must lie above 0, got gain +0.000")
    assert tags("2")["promotion.reasons"] == decision.reasons[0]
    assert decision.summary().startswith("attacker version 2 is not promoted: lower end")


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

    decision = promote()

    assert not decision.promoted
    assert decision.champion_version == "1"
    assert aliases() == {"candidate": "2", "champion": "1"}


def test_a_candidate_that_repeats_itself_is_refused(project):
    register_another(project, 1, rate=0.9, unique_probes=0.3, distinct_2=0.1)

    decision = promote()

    assert not decision.promoted
    assert [reason.split(" ")[0] for reason in decision.reasons] == ["unique_probes", "distinct_2"]


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
    assert refused.reasons[0].startswith("lower end of the gain must lie above 0, got gain +0.000")
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


def test_a_champion_examined_otherwise_is_examined_again_once(project):
    promote()
    register_another(project, 1, rate=0.9, key="cd" * 32)
    examined = []

    def evaluate(folder):
        examined.append(folder)
        table = prompt_table(rate=0.7, baseline=0.2).query("role == 'attacker'")
        return {"evaluation_key": "cd" * 32, "attacker": measured(0.7)}, table

    decision = promote(evaluate=evaluate)

    assert decision.promoted
    assert pytest.approx(0.2) == decision.comparison.gain
    assert (examined[0] / "model.safetensors").is_file()

    register_another(project, 2, rate=0.1, key="cd" * 32)
    rollback("attacker")
    promote()  # Against version 1 again: its second examination was kept.

    assert len(examined) == 1


def test_a_champion_that_can_only_be_examined_otherwise_is_an_error(project):
    promote()
    register_another(project, 1, rate=0.9, key="cd" * 32)

    def evaluate(_):
        return {"evaluation_key": "ef" * 32}, prompt_table(rate=0.7, baseline=0.2)

    with pytest.raises(DataError, match=r"must be examined as params\.yaml says now"):
        promote(evaluate=evaluate)
    assert aliases()["champion"] == "1"


def test_tables_of_other_prompts_are_not_compared(project):
    promote()
    register_another(project, 1, rate=0.9, key="cd" * 32)

    def evaluate(_):
        table = prompt_table(rate=0.7, baseline=0.2).query("role == 'attacker'")
        return {"evaluation_key": "cd" * 32}, table.assign(prompt_id=table["prompt_id"] + "x")

    with pytest.raises(DataError, match="must be examined on the same prompts, got 40 and 40"):
        promote(evaluate=evaluate)


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
    promote()
    register_another(project, 1, rate=0.8)
    promote()
    register_another(project, 2, rate=1.0)
    promote()

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

    assert num_writes == 6  # Two tags, two aliases, one tag, and the round that lived.


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
    for key in ("promotion.decision", "promotion.reasons", "promotion.previous"):
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

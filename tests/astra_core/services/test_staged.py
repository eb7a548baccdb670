import contextlib
import json
from pathlib import Path

import pytest

from astra_core.errors import CheckpointError
from astra_core.services.staged import DONE, Stage, StagedTrainer
from astra_core.services.trainer_state import TrainerState

FILE = Path(__file__).parents[2] / "vectors" / "nip_staged_resume.json"
CASES = [c for c in json.loads(FILE.read_text("utf-8"))["cases"] if "test_scheme" in c]


class TextTrainer(StagedTrainer):
    """The stages of the vectors, and in their words what was done."""

    def __init__(self, state, case, actions):
        super().__init__(state, num_iterations=case["num_iterations"])
        self.scheme, self.actions = case["test_scheme"], actions
        self.loaded = None

    def stages(self):
        last = self.num_iterations - 1
        return [
            Stage("sample_rollouts", self.sample),
            Stage("log_stats", self.log),
            Stage("test_during_training", self.test),
            Stage("create_fine_tune_jobs", self.create),
            Stage("await_fine_tune_jobs", self.wait, is_due=lambda at: at < last),
        ]

    def closing(self):
        return [Stage("test", lambda _: None)]

    def sample(self, at):
        self.actions.append(f"sample {at}")
        self.loaded = at

    def load(self, at):
        if self.loaded != at:
            self.actions.append(f"load_rollouts {at}")
            self.loaded = at

    def log(self, at):
        self.load(at)
        self.actions.append(f"log {at}")

    def test(self, at):
        ends = {0, self.num_iterations - 1}
        due = {"all": {at}, "none": set(), "first_and_last": ends, "last": ends - {0} or {0}}
        if at in due[self.scheme]:
            self.actions.append(f"test {at}")

    def create(self, at):
        if at < self.num_iterations - 1:
            self.load(at)
            self.actions.append(f"create_jobs {at}")

    def wait(self, at):
        self.actions.append(f"await_jobs {at}")


def run(case, folder, *, kill_after=None):
    """The actions and the states written by a process that may be killed after one of these."""
    actions, places = [], []
    trainer = TextTrainer(TrainerState.open(folder / "state.json", run="r"), case, actions)

    def note(iteration, stage):
        places.append([trainer.state.iteration, trainer.state.stage])
        if len(places) == kill_after:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        trainer.run(note)
    return actions, places


@pytest.mark.parametrize("case", [c for c in CASES if "expected_checkpoints" in c])
def test_stages_and_states_are_those_of_the_vectors(case, tmp_path):
    actions, places = run(case, tmp_path)

    assert case["expected_actions"] == actions
    assert case["expected_checkpoints"] == places
    assert ([], []) == run(case, tmp_path)


@pytest.mark.parametrize("case", [c for c in CASES if "killed_after_checkpoint" in c])
def test_a_killed_run_goes_on_with_the_stage_it_was_in(case, tmp_path):
    before, places = run(case, tmp_path, kill_after=case["killed_after_checkpoint"])
    after, _ = run(case, tmp_path)
    whole, _ = run(case, tmp_path / "whole")

    assert case["resumed_state"] == places[-1]
    # The vectors load rollouts after a test, where the state is loaded; here where they are used.
    assert case["expected_actions_after_resume"] == after
    assert whole == [a for a in before + after if not a.startswith("load")]


def test_a_finished_run_that_is_to_be_longer_goes_on_behind_its_last_iteration(tmp_path):
    short, _ = run({"num_iterations": 1, "test_scheme": "none"}, tmp_path)
    rest, places = run({"num_iterations": 2, "test_scheme": "none"}, tmp_path)

    assert ["sample 0", "log 0"] == short
    assert ["sample 1", "log 1"] == rest
    assert [2, DONE] == places[-1]


def test_a_stage_that_the_trainer_does_not_have_is_told(tmp_path):
    state = TrainerState.open(tmp_path / "state.json", run="r")
    state.move_to(0, "dance")

    with pytest.raises(CheckpointError, match=r"must be at one of the stages .* got 'dance'"):
        run({"num_iterations": 1, "test_scheme": "none"}, tmp_path)

import contextlib
import json
from pathlib import Path

from each_row import each_row

from astra_core.training.staged import TrainerStage, walk
from astra_parts.services.trainer_state import TrainerState

FILE = Path(__file__).parents[2] / "vectors" / "nip_staged_resume.json"
CASES = [c for c in json.loads(FILE.read_text("utf-8"))["cases"] if "test_scheme" in c]
CLOSING = "test"


class TextRun:
    """The stages of the vectors, and in their words what one process did.

    Attributes:
        actions: What was done, and not found in the state.
        places: Where the state was whenever a stage began.
    """

    def __init__(self, state, case, *, kill_after=None):
        self.state, self.kill_after = state, kill_after
        self.num_iterations, self.scheme = case["num_iterations"], case["test_scheme"]
        self.actions, self.places = [], []
        self.loaded = None

    def run(self):
        """Does all from the iteration that the state is in."""
        last = self.num_iterations - 1
        own = [
            self.stage("sample_rollouts", self.sample),
            self.stage("log_stats", self.log),
            self.stage("test_during_training", self.test),
            self.stage("create_fine_tune_jobs", self.create),
        ]
        awaited = self.stage("await_fine_tune_jobs", self.wait)
        closing = [self.stage(CLOSING, lambda _: None)]
        for iteration in range(self.state.iteration, self.num_iterations + 1):
            stages = [*own, awaited] if iteration < last else own
            is_last = iteration == self.num_iterations
            list(walk(self.state, closing if is_last else stages, iteration))

    def stage(self, name, do):
        def effect(iteration):
            self.places.append([self.state.iteration, self.state.stage])
            # The first stage of a process has no checkpoint of its own before it.
            if self.kill_after is not None and len(self.places) == self.kill_after + 1:
                raise KeyboardInterrupt
            self.state.once("", iteration, do=lambda _: do(iteration) or {})

        return TrainerStage(name, effect)

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
    """The actions and places of a process that may be killed after so many checkpoints."""
    own = TextRun(TrainerState.open(folder / "state.json", run="r"), case, kill_after=kill_after)
    with contextlib.suppress(KeyboardInterrupt):
        own.run()
    return own.actions, own.places


@each_row("case", [c for c in CASES if "expected_checkpoints" in c])
def test_stages_and_states_are_those_of_the_vectors(case, tmp_path):
    actions, places = run(case, tmp_path)

    assert case["expected_actions"] == actions
    # The vectors have a state after the last stage; here a trainer knows by its own progress.
    assert case["expected_checkpoints"] == [*places[1:], [case["num_iterations"], "done"]]
    assert [] == run(case, tmp_path)[0]


@each_row("case", [c for c in CASES if "killed_after_checkpoint" in c])
def test_a_killed_run_does_what_was_not_done(case, tmp_path):
    before, places = run(case, tmp_path, kill_after=case["killed_after_checkpoint"])
    after, _ = run(case, tmp_path)
    whole, _ = run(case, tmp_path / "whole")

    assert case["resumed_state"] == places[-1]
    assert case["expected_actions_after_resume"] == after
    assert whole == [a for a in before + after if not a.startswith("load")]

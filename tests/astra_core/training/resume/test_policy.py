import json
from pathlib import Path

import pytest
import torch
from each_row import each_row
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.config import AlgorithmChoice, Choice, TrainingConfiguration
from astra_core.errors import CheckpointError
from astra_core.files import read_json
from astra_core.training.distribution.distributed import World
from astra_core.training.resume.policy import (
    as_begun,
    changed_fields,
    check_resumable,
    has_same_major,
)

VECTORS = Path(__file__).parents[3] / "vectors"
VERSIONS = json.loads((VECTORS / "nip_version_compatibility.json").read_text("utf-8"))["cases"]


def identity(**changes):
    config = TrainingConfiguration().model_dump(mode="json")
    own = {"config": config, "algorithm": "dpo", "version": "1.2.3", "seed": 0, "system": "a"}
    return {**own, **changes}


@each_row("case", VERSIONS)
def test_versions_are_compared_by_their_major_number(case):
    assert (case["expected"][1] != "major") == has_same_major(case["a"], case["b"])


@each_row("version", ["1.2.3", "1.2.9", "1.9"])
def test_another_patch_or_minor_version_resumes(version):
    assert {} == check_resumable(identity(version=version), identity(), subject="it")


@each_row("version", ["2.0.0", "0.9", None])
def test_another_major_version_resumes_only_if_it_is_allowed(version):
    record = identity(version=version)
    with pytest.raises(CheckpointError, match=r"allow_other_version"):
        check_resumable(record, identity(), subject="it")
    allowed = TrainingConfiguration(checkpoint={"allow_other_version": True})
    own = identity(config=allowed.model_dump(mode="json"))

    assert ["checkpoint.allow_other_version"] == list(check_resumable(record, own, subject="it"))


def test_another_algorithm_is_refused_by_name():
    with pytest.raises(CheckpointError, match=r"^runs/a was written by grpo and cannot resume ppo"):
        check_resumable(identity(algorithm="grpo"), identity(algorithm="ppo"), subject="runs/a")


@each_row("name", ["seed", "system"])
def test_another_seed_or_system_is_refused(name):
    with pytest.raises(CheckpointError, match=f"must have {name}"):
        check_resumable(identity(**{name: "other"}), identity(), subject="it")


@each_row(
    "change",
    [
        {"training_steps": 7},
        {"eval_every": 7},
        {"eval_first": False},
        {"max_nonfinite_steps": 7},
        {"gradient_checkpointing": True},
        {"dump_steps": (1, 2)},
        {"checkpoint": {"save_every": 7, "keep": 9, "resume": "never"}},
        {"early_stopping": {"patience": 7, "max_kl_nats": 1.0, "max_seconds": 1.0}},
    ],
)
def test_what_cannot_change_an_update_may_differ(change):
    own = identity(config=TrainingConfiguration(**change).model_dump(mode="json"))

    assert check_resumable(identity(), own, subject="it")


@each_row(
    ("change", "named"),
    [
        ({"lr": 0.5}, "lr"),
        ({"optimizer": {"name": "sgd"}}, "optimizer.name"),
        ({"algorithm": {"name": "dpo", "options": {"beta": 1.0}}}, "algorithm.options.beta"),
        ({"batch_size": 3}, "batch_size"),
        ({"precision": "bf16"}, "precision"),
        ({"metric": "eval/self_bleu"}, "metric"),
        ({"mode": "min"}, "mode"),
        ({"early_stopping": {"min_delta": 0.5}}, "early_stopping.min_delta"),
        ({"lora": {"rank": 4}}, "lora.rank"),
        ({"parts": {"head": {"pattern": "head"}}}, "parts.head.pattern"),
    ],
)
def test_what_would_change_an_update_may_not_differ(change, named):
    own = identity(config=TrainingConfiguration(**change).model_dump(mode="json"))
    with pytest.raises(CheckpointError, match="must be resumed with") as caught:
        check_resumable(identity(), own, subject="it")

    assert f"'{named}'" in str(caught.value)


def test_a_field_of_a_later_version_counts_as_its_default():
    now = TrainingConfiguration().model_dump(mode="json")
    before = {name: value for name, value in now.items() if name != "precision"}

    assert {} == changed_fields(before, now)
    assert ["precision"] == list(changed_fields(before, {**now, "precision": "bf16"}))


def test_a_plain_choice_of_an_algorithm_is_one_with_published_defaults():
    config = TrainingConfiguration().model_copy(update={"algorithm": Choice(name="grpo")})
    own = identity(config=config.model_dump(mode="json"))

    assert AlgorithmChoice(name="grpo") == config.algorithm
    assert {} == check_resumable(own, own, subject="it")


@pytest.mark.real
def test_a_run_that_is_prolonged_ends_like_one_that_was_planned_so_long(tmp_path):
    trainer_of(configured(training_steps=2), tmp_path / "run").train()
    longer = trainer_of(configured(training_steps=4), tmp_path / "run")
    longer.resume()
    longer.train()
    whole = trainer_of(configured(training_steps=4), tmp_path / "whole")
    whole.train()

    assert weights_of(whole) == weights_of(longer)
    assert 4 == longer.progress.training_step
    assert "all training steps are done" == longer.progress.stopped_because


def _files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.real
@pytest.mark.parametrize(("mode", "eval_every"), [("max", 3), ("min", 2)])
def test_a_run_that_is_prolonged_leaves_the_files_of_one_that_was_planned_so_long(
    tmp_path, mode, eval_every
):
    settings = {"metric": "eval/kl_nats", "mode": mode, "eval_every": eval_every}
    settings["checkpoint"] = {"save_every": 4, "keep": 1}
    # With two steps in a round, the last evaluation of three steps was made only as they ended.
    trainer_of(configured(training_steps=3, **settings), tmp_path / "run").train()
    longer = trainer_of(configured(training_steps=5, **settings), tmp_path / "run")
    assert longer.resume()
    assert 3 == longer.progress.training_step
    evaluated = [point.training_step for point in longer.progress.evaluations]
    longer.train()
    whole = trainer_of(configured(training_steps=5, **settings), tmp_path / "whole")
    whole.train()

    assert {2: [0, 2], 3: [0, 3]}[eval_every] == evaluated
    assert whole.progress == longer.progress
    assert whole.best.record() == longer.best.record()
    assert _files(tmp_path / "whole") == _files(tmp_path / "run")


@pytest.mark.real
@each_row("evaluate", ["last", "none"])
def test_a_run_that_is_evaluated_at_its_ends_alone_is_prolonged_likewise(tmp_path, evaluate):
    settings = {"evaluate": evaluate, "eval_every": 3, "metric": "eval/kl_nats"}
    trainer_of(configured(training_steps=3, **settings), tmp_path / "run").train()
    longer = trainer_of(configured(training_steps=4, **settings), tmp_path / "run")
    longer.resume()
    longer.train()
    whole = trainer_of(configured(training_steps=4, **settings), tmp_path / "whole")
    whole.train()

    assert whole.progress == longer.progress
    assert whole.best.record() == longer.best.record()
    assert weights_of(whole) == weights_of(longer)


@pytest.mark.real
def test_a_run_that_stays_ended_has_its_last_evaluation(tmp_path):
    settings = {"early_stopping": {"max_optimizer_steps": 5}, "eval_every": 7, "batch_size": 1}
    first = trainer_of(configured(training_steps=5, **settings), tmp_path / "run")
    first.train()
    longer = trainer_of(configured(training_steps=9, **settings), tmp_path / "run")
    longer.resume()
    longer.train()

    assert "5 optimiser steps are done" == first.progress.stopped_because
    assert first.progress == longer.progress
    assert weights_of(first) == weights_of(longer)


def test_resume_never_starts_over_and_leaves_nothing_of_the_old_run(tmp_path):
    trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False).train()
    config = configured(checkpoint={"save_every": 1, "resume": "never"}, training_steps=1)
    again = trainer_of(config, tmp_path, is_evaluated=False)

    assert not again.resume()
    assert [] == list(tmp_path.iterdir())
    assert 1 == again.train().training_step


@pytest.mark.real
@pytest.mark.parametrize("place", ["run/step_000002", "run", "parent"])
def test_a_run_starts_from_the_checkpoint_of_another(tmp_path, place):
    (tmp_path / "parent").symlink_to(tmp_path)
    (tmp_path / "checkpoints").symlink_to(tmp_path / "run")
    source = trainer_of(configured(metric="eval/kl_nats", eval_every=1), tmp_path / "run")
    source.train()
    changes = {"metric": "eval/kl_nats", "eval_every": 1, "training_steps": 4}
    resume = {"save_every": 1, "resume": str(tmp_path / place)}
    started = trainer_of(configured(checkpoint=resume, **changes), tmp_path / "new")

    assert started.resume()
    assert (2 if place.endswith("2") else 3) == started.progress.training_step
    assert source.best.model.startswith("best_")
    # Killed now, it goes on from its own state, though it is told to start from the other.
    again = trainer_of(configured(checkpoint=resume, **changes), tmp_path / "new")
    assert again.resume()
    again.train()
    whole = trainer_of(configured(**changes), tmp_path / "whole")
    whole.train()
    assert weights_of(whole) == weights_of(again)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    trainer = trainer_of(configured(checkpoint={"resume": str(tmp_path / "no")}), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"checkpoint\.resume must name a folder"):
        trainer.resume()


def test_a_checkpoint_of_another_algorithm_is_refused_where_it_lies(tmp_path):
    trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False).train()
    other = trainer_of(configured(training_steps=1, algorithm=choice("grpo")), tmp_path)
    with pytest.raises(CheckpointError, match=r"step_000001 was written by dpo and cannot resume"):
        other.resume()


def test_every_checkpoint_says_what_wrote_it(tmp_path):
    trainer = trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False)
    trainer.train()
    record = read_json(tmp_path / "step_000001" / "record.json")

    assert trainer.config == TrainingConfiguration.read(record["config"], where="it")
    assert ("dpo", 1) == (record["algorithm"], record["seed"])


STAGED = json.loads((VECTORS / "nip_staged_resume.json").read_text("utf-8"))["cases"]


class Diary:
    """What a Trainer does, in the words of the vectors: sample, update, test."""

    def __init__(self, trainer, *, stop_after=None):
        self.done = []
        self._stop_after = stop_after
        trainer.harness.experience = self._noting("sample", trainer.harness.experience)
        trainer.updates.apply = self._noting("update", trainer.updates.apply)
        trainer.evaluator.evaluate = self._noting("test", trainer.evaluator.evaluate)
        self._trainer = trainer

    def _noting(self, name, function):
        def noted(*args, **kwargs):
            action = f"{name} {self._trainer.progress.training_step}"
            if self.done[-1:] != [action]:
                if len(self.done) == self._stop_after:
                    raise KeyboardInterrupt
                self.done.append(action)
            return function(*args, **kwargs)

        return noted


@pytest.mark.real
@each_row("case", [c for c in STAGED if "expected_checkpoints" in c])
def test_stages_come_in_order_and_tests_where_the_scheme_wants_them(case, tmp_path):
    """NIP tests after sampling, before training; here the trained policy of a step is tested."""
    count = case["num_iterations"]
    scheme = {
        "none": {"is_evaluated": False},
        "all": {"eval_every": 1},
        "last": {"eval_every": count},
        "first_and_last": {"eval_every": count, "eval_first": True},
    }[case["test_scheme"]]
    is_evaluated = scheme.pop("is_evaluated", True)
    config = configured(training_steps=count, **{"eval_first": False, **scheme})
    trainer = trainer_of(config)
    diary = Diary(trainer)
    if not is_evaluated:
        trainer.evaluator = None
    trainer.train()
    wanted = [a for a in case["expected_actions"] if a.startswith(("sample", "create_jobs"))]
    theirs = [a.replace("create_jobs", "update") for a in wanted]
    ours = [a for a in diary.done if not a.startswith("test")]
    tested = len([a for a in case["expected_actions"] if a.startswith("test")])

    # Theirs never trains on the last experience; ours does.
    assert [*theirs, f"update {count - 1}"] == ours
    assert tested == len([a for a in diary.done if a.startswith("test")])


@pytest.mark.wide
def test_a_run_killed_after_any_action_does_the_rest_and_ends_the_same(tmp_path):
    config = configured(eval_every=1, metric="eval/kl_nats")
    whole = trainer_of(config, tmp_path / "whole")
    diary = Diary(whole)
    whole.train()
    for moment in range(1, len(diary.done)):
        folder = tmp_path / f"killed_{moment}"
        trainer = trainer_of(config, folder)
        first = Diary(trainer, stop_after=moment)
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        resumed = trainer_of(config, folder)
        second = Diary(resumed)
        resumed.resume()
        resumed.train()

        # What is done again begins at the last checkpoint, and then nothing is left out.
        assert diary.done[len(diary.done) - len(second.done) :] == second.done
        assert diary.done[:moment] == first.done
        assert len(first.done) + len(second.done) >= len(diary.done)
        assert weights_of(whole) == weights_of(resumed)


@pytest.mark.real
@each_row("precision", ["fp32", "bf16"])
@each_row("is_told", [False, True])
def test_auto_continues_in_the_precision_that_the_run_began_with(tmp_path, precision, is_told):
    trainer_of(configured(precision=precision, training_steps=1), tmp_path / "run").train()
    # By the run's own checkpoints, or by those that it is told to go on from.
    checkpoint = {"resume": str(tmp_path / "run")} if is_told else {}
    folder = tmp_path / "other" if is_told else tmp_path / "run"
    config = configured(precision="auto", training_steps=2, checkpoint=checkpoint)
    resumed = trainer_of(config, folder)

    assert precision == resumed.config.precision
    assert resumed.resume()
    assert 2 == resumed.train().training_step


def test_auto_of_a_run_that_begins_is_settled_in_every_process(tmp_path):
    class Second(World):
        """The second of two processes, whose first says bf16."""

        def first_says(self, text):
            assert text in {"fp32", "bf16"}
            return "bf16"

    config = configured(precision="auto")
    model = torch.nn.Linear(8, 8)

    assert "bf16" == as_begun(config, model, store=None, world=Second(1, 2)).precision
    assert config.precision == "auto"

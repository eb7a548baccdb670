"""NIP's guide to a new trainer, pattern by pattern."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from guide_scripts import preset, sampler_of, weights_of
from hostile_jobs import HostileJobs
from job_service import Worker, app_of, served, service_in
from tiny_training import configured, sampler_of as tiny_sampler_of

from astra_core import System, Trainer, TrainingConfiguration
from astra_core.config import Count, Section
from astra_core.errors import TrainingError
from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import weights_digest
from astra_core.registry import build, resolve
from astra_core.samplers.tree import TreeSampler
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.algorithms.ppo import PPO
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.algorithms.sft import SFT
from astra_parts.testing import tiny_system
from plugins.lessons import LessonsTrainer, read_lessons

MINE = __name__


class Named(Trainer):
    """Says who it is, with a number of its own."""

    class Options(Section):
        patience: Count = 3

    def end(self):
        is_over = self.progress.training_step >= self.options.patience
        return super().end() or ("named" if is_over else "")


@pytest.mark.row(69, "a trainer is registered and named")
def test_a_trainer_is_named_by_its_import_path(pipeline):
    named = {"name": f"{MINE}:Named", "options": {"patience": 1}}

    assert "named" == pipeline(training={"trainer": named}).report["stopped_because"]


@pytest.mark.row(70, "hyper-parameters of one's own (`SubParameters`)")
def test_own_hyper_parameters_have_defaults_and_ranges(pipeline):
    default = pipeline(training={"trainer": {"name": f"{MINE}:Named"}})
    wrong = pipeline(training={"trainer": {"name": f"{MINE}:Named", "options": {"patience": 0}}})

    assert 3 == default.report["training_steps"]
    assert 2 == wrong.status
    assert "patience" in wrong.line


class OwnLoss(PPO):
    """Only the loss differs; GAE and the loop are the built-in ones."""

    def step(self, batch):
        loss, logs = super().step(batch)
        return 2 * loss, {**logs, "own_loss": 1.0}


@pytest.mark.wide
@pytest.mark.row(71, "`TensorDictRlTrainer`: only a loss and GAE")
def test_a_loss_alone_is_enough(here):
    mine = {"algorithm": {"name": f"{MINE}:OwnLoss"}, "training_steps": 1}
    own, plain = preset(**mine), preset(**mine | {"algorithm": {"name": "ppo"}})

    ratio = next(own.steps()).loss / next(plain.steps()).loss
    assert ratio == pytest.approx(2.0, rel=1e-4)


class TrainThenTest(Trainer):
    """A train loop and a test loop, each a method of its own."""

    def train(self):
        self.run_train_loop()
        self.run_test_loop()

    def run_train_loop(self):
        while self.progress.training_step < self.config.training_steps:
            experience = self.harness.experience(self.progress.training_step)
            for window in self.windows(experience):
                self.update(window, experience)
            self.progress.training_step += 1
            self.save()

    def run_test_loop(self):
        self.evaluate()


@pytest.mark.wide
@pytest.mark.row(72, "`TensorDictTrainer`: a train loop and a test loop of one's own")
@pytest.mark.row(17)
def test_both_loops_run_in_a_script(here):
    trainer = preset(trainer={"name": f"{MINE}:TrainThenTest"})
    trainer.train()

    assert [2] == [point.training_step for point in trainer.progress.evaluations]


@pytest.mark.row(72)
def test_both_loops_run_in_the_pipeline(pipeline):
    ran = pipeline(training={"trainer": {"name": f"{MINE}:TrainThenTest"}})

    assert 0 == ran.status
    assert [0, 3] == [each["training_step"] for each in ran.report["evaluations"]]


@pytest.mark.wide
@pytest.mark.row(73, "`attach_progress_bar`: the total is known")
def test_the_bar_knows_the_total(here, monkeypatch):
    seen = []

    def bar(description, *, total, done=0):
        from contextlib import nullcontext

        seen.append((description, total, done))
        return nullcontext(seen.append)

    monkeypatch.setattr("astra_core.training.trainer.progress_bar", bar)
    preset(training_steps=2).train()

    assert ("training", 2, 0) == seen[0]
    assert 2 == seen[-1]


@pytest.mark.row(74, "contexts: deterministic kernels, devices")
def test_kernels_are_deterministic_and_the_device_is_a_setting(here):
    torch.use_deterministic_algorithms(False)
    trainer = preset()

    assert torch.are_deterministic_algorithms_enabled()
    assert "cpu" == trainer.sampler.system.attacker.device.type


@pytest.fixture
def lessons(world):
    lines = [{"prompt": "why", "probe": "no"}, {"prompt": "you are", "probe": "so kind"}]
    (world / "lessons.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return {
        "trainer": {"name": "plugins.lessons:LessonsTrainer", "options": {"path": "lessons.jsonl"}},
        "algorithm": {"name": "sft"},
        "lr": 0.01,
    }


@pytest.mark.wide
@pytest.mark.row(75, "`solo_agent`: supervised learning")
def test_supervised_learning_lowers_its_loss(here):
    lines = [{"prompt": "why", "probe": "no"}, {"prompt": "you are", "probe": "so kind"}]
    Path("lessons.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    system = tiny_system(1)
    choice = {"name": "plugins.lessons:LessonsTrainer", "options": {"path": "lessons.jsonl"}}
    config = TrainingConfiguration.read(
        {"trainer": choice, "training_steps": 4, "lr": 0.01}, where="training"
    )
    trainer = LessonsTrainer(config, sampler_of(system), SFT(SFT.Options(), system=system))
    losses = [report.loss for report in trainer.steps()]

    assert losses[-1] < losses[0]


def taught(attacker):
    """The loss of the lessons under the attacker of a folder."""
    plain = tiny_system(1)
    system = System.of(
        LanguageModel.load(Path(attacker)),
        plain.target,
        plain.reference,
        scorer=plain.scorer,
        config=plain.config,
    )
    algorithm = SFT(SFT.Options(), system=system)
    batch = algorithm.collate(read_lessons(Path("lessons.jsonl"), system))
    return float(algorithm.step(batch)[0].detach()) / batch.weight


@pytest.mark.row(75)
def test_supervised_learning_exports_what_it_has_learned(pipeline, world, lessons):
    (world / "plugins/lessons.py").write_text(
        (Path(__file__).parents[2] / "plugins/lessons.py").read_text("utf-8"), "utf-8"
    )
    ran = pipeline(training={**lessons, "keep": "last"})
    losses = [float(row["train/loss"]) for row in ran.rows[1:]]

    assert 0 == ran.status
    assert taught("models/base/tiny") == pytest.approx(losses[0], rel=1e-4)
    assert taught("models/attacker") < losses[-1] < losses[0]


def text_trainer(folder, url):
    """Expert iteration at a service, as a new process would build it."""
    attacker = {"base_url": url, "model": "tiny", "replies": str(folder / "replies")}
    options = {"attacker": attacker, "min_examples": 1, "poll_s": 0.01, "export": False}
    algorithm = {"name": "expert_iteration", "options": {"selection": "top_k", "k": 2}}
    config = configured(
        trainer={"name": "text", "options": options}, algorithm=algorithm, training_steps=2
    )
    system = tiny_system(0)
    store = CheckpointStore(folder / "run")
    own = build("algorithm", config.algorithm, system=system)
    sampler = tiny_sampler_of(system)
    return resolve("trainer", "text")(config, sampler, own, store=store)


@pytest.mark.wide
@pytest.mark.row(76, "`PureTextRlTrainer`: stages, state after each")
def test_stages_of_a_remote_training_are_saved_one_by_one(tmp_path):
    with served(HostileJobs().app) as url:
        text_trainer(tmp_path, url).train()
    state = json.loads((tmp_path / "run/service/state.json").read_text("utf-8"))

    assert ["0/fine_tune/file-0", "0/fine_tune/job-0", "0/fine_tune/model"] == [
        "{iteration}/{stage}/{part}".format(**each["intent"]) for each in state["effects"][:3]
    ]
    assert all(each["result"] for each in state["effects"])


@pytest.mark.wide
@pytest.mark.row(77, "fine-tune jobs are created, awaited, switched to")
def test_fine_tune_jobs_are_created_and_awaited(tmp_path):
    service = HostileJobs("failed", "succeeded")
    with served(service.app) as url:
        with pytest.raises(TrainingError, match="got failed"):
            text_trainer(tmp_path, url).train()
        trainer = text_trainer(tmp_path, url)
        trainer.resume()
        trainer.train()

    assert ["tiny", "tiny", "ft:1"] == [job["model"] for job in service.jobs]
    assert "ft:2" == trainer.speaker.model


@pytest.mark.row(77)
def test_the_stage_learns_by_jobs_of_the_own_service(pipeline, tmp_path):
    service = service_in(tmp_path)
    with served(app_of(service)) as url, Worker(service):
        attacker = {"base_url": url, "model": "tiny", "replies": str(tmp_path / "replies")}
        options = {"attacker": attacker, "min_examples": 1, "poll_s": 0.02}
        algorithm = {"name": "expert_iteration", "options": {"k": 2}}
        ran = pipeline(
            training={
                "trainer": {"name": "text", "options": options},
                "algorithm": algorithm,
                "training_steps": 2,
                "keep": "last",
            }
        )
    jobs = service.store.jobs()

    assert (0, 2) == (ran.status, ran.report["training_steps"]), ran.said
    assert ["succeeded"] * 2 == [job.status for job in jobs]
    made = service.folders()[jobs[-1].fine_tuned_model]
    own, exported = (LanguageModel.load(place).model for place in (made, "models/attacker"))
    weights = exported.state_dict()
    assert all(torch.equal(weights[name], own) for name, own in own.state_dict().items())


class OwnRollouts(TreeSampler):
    """Rolls out each prompt as a later training step would."""

    def roll_out(self, prompts, *, iteration):
        return super().roll_out(prompts, iteration=iteration + 100)


@pytest.mark.row(78, "`_sample_rollouts` overridden")
def test_own_rollouts_are_learned_from(pipeline):
    options = {"tree_width": 3, "num_responses": 2}
    own, plain = (
        pipeline(rollouts={"sampler": {"name": name, "options": options}})
        for name in (f"{MINE}:OwnRollouts", "tree")
    )

    assert (0, 0) == (own.status, plain.status)
    assert own.report["checkpoint_digest"] != plain.report["checkpoint_digest"]


class Telling(REINFORCE):
    """The usual figures and one more."""

    def remember(self, graphs):
        figures = super().remember(graphs)
        return {
            **figures,
            "longest": float(max(len(n.probe_ids) for g in graphs for n in g.nodes())),
        }


@pytest.mark.wide
@pytest.mark.row(79, "`_get_log_stats` overridden")
def test_an_algorithm_adds_figures_of_the_rollouts(here):
    reports = list(preset(algorithm={"name": f"{MINE}:Telling"}).steps())

    assert all(report.metrics["train/longest"] >= 1 for report in reports)


class TellingSampler(TreeSampler):
    """Has figures of its own."""

    def remember(self, graphs):
        return {"sampled": float(len(graphs))}


@pytest.mark.row(79)
def test_a_sampler_adds_figures_of_the_rollouts(pipeline):
    options = {"tree_width": 3}
    ran = pipeline(rollouts={"sampler": {"name": f"{MINE}:TellingSampler", "options": options}})

    assert 4.0 == float(ran.rows[-1]["sampler/sampled"])


@pytest.mark.wide
@pytest.mark.row(80, "`test_scheme`: none, all, last, first and last")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"eval_every": 1, "eval_first": True}, [0, 1, 2]),
        ({"eval_every": 99, "eval_first": False}, [2]),
        ({"eval_every": 99, "eval_first": True}, [0, 2]),
        ({"evaluate": "first"}, [0]),
        ({"evaluate": "last"}, [2]),
        ({"evaluate": "first_and_last"}, [0, 2]),
    ],
)
def test_evaluations_happen_when_they_are_asked_for(here, changes, expected):
    progress = preset(**changes).train()

    assert expected == [point.training_step for point in progress.evaluations]


@pytest.mark.wide
@pytest.mark.row(80)
def test_no_evaluation_happens_when_none_is_asked_for(here):
    trainer = preset(evaluate="none")

    assert [] == trainer.train().evaluations
    # A test loop of one's own has what it needs all the same.
    assert trainer.examine(trainer.evaluator)["eval/score_mean"] >= 0.0


@pytest.mark.wide
@pytest.mark.row(81, "the run resumes from any stage")
def test_a_cut_run_ends_where_a_whole_one_does(here):
    whole = preset(training_steps=3, checkpoint={"save_every": 1})
    whole.train()
    weights, best = weights_of(whole), whole.best.training_step
    shutil.rmtree("my/run")
    cut = preset(training_steps=3, checkpoint={"save_every": 1})
    for report in cut.steps():
        if report.training_step == 2:
            break
    again = preset(training_steps=3, checkpoint={"save_every": 1})

    assert again.resume()
    again.train()
    assert (weights, best) == (weights_of(again), again.best.training_step)


@pytest.mark.row(82, "seed, train, test, save")
def test_the_same_seed_ends_with_the_same_saved_model(pipeline):
    digests = [
        pipeline(**sections).report["checkpoint_digest"]
        for sections in ({"training": {"lr": 0.01}}, {"training": {"lr": 0.01}})
    ]

    assert digests[0] == digests[1] != weights_digest(Path("models/base/tiny"))
    assert LanguageModel.load(Path("models/attacker")).num_parameters > 0


@pytest.mark.row(83, "settings of the machine are apart from hyper-parameters")
def test_where_a_run_is_recorded_is_no_hyper_parameter(pipeline):
    keys = [
        pipeline(**sections).report["run_key"]
        for sections in (
            {"registration": {"experiment": "one"}},
            {"registration": {"experiment": "two"}},
            {"registration": {"experiment": "two"}, "training": {"lr": 0.011}},
        )
    ]

    assert keys[0] == keys[1] != keys[2]

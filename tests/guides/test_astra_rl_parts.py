"""ASTRA-RL's guide: rules, schedules, algorithms, sinks, targets and samplers of one's own."""

from pathlib import Path

import pytest
import torch
from guide_scripts import CONFIG, FAST, SMALL, dpo, preset, sampler_of, trained, weights_of

from astra_core import Harness, System, Trainer, TrainingConfiguration
from astra_core.algorithms.credit import can_teach
from astra_core.algorithms.dpo import DPO
from astra_core.config import Section
from astra_core.sampler import rolled_out
from astra_core.samplers.tree import TreeSampler
from astra_core.target import Answer, Reply, Surroundings, Target
from astra_core.training.optimization.optimizers import SchedulePlugin
from astra_parts.algorithms.policy_batch import PolicyStep
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.sink import Sink
from astra_parts.testing import (
    check_algorithm,
    check_sampler,
    check_target,
    tiny_prompts,
    tiny_system,
)

MINE = __name__

TWO = tiny_prompts(2)


class UntilDull(Trainer):
    """Ends once it has been evaluated twice."""

    def end(self):
        return super().end() or ("seen twice" if len(self.progress.evaluations) > 1 else "")


@pytest.mark.row(23, "early stopping after x evaluations without improvement")
def test_patience_ends_the_run(pipeline):
    rule = {"patience": 1, "min_delta": 1e6}
    ran = pipeline(training={"training_steps": 5, "eval_every": 1, "early_stopping": rule})

    assert 1 == ran.report["training_steps"]


@pytest.mark.row(24, "early stopping by a rule of one's own")
def test_an_own_rule_ends_the_run(pipeline):
    ran = pipeline(training={"eval_every": 1, "trainer": {"name": f"{MINE}:UntilDull"}})

    assert "seen twice" == ran.report["stopped_because"]


@pytest.mark.row(25, "early stopping by a budget keeps what was learned")
def test_a_budget_ends_with_an_evaluation_of_what_was_learned(pipeline):
    rule = {"max_optimizer_steps": 4}
    ran = pipeline(training={"eval_every": 50, "batch_size": 2, "early_stopping": rule})

    assert 4 == ran.report["optimizer_steps"]
    assert [0, 4] == [each["step"] for each in ran.report["evaluations"]]


class Halving(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


@pytest.mark.wide
@pytest.mark.row(26, "the schedule's state lies beside the checkpoints")
def test_a_resumed_run_goes_on_at_its_rate(here):
    halving = {"name": f"{MINE}:Halving"}
    preset(schedule=halving, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(schedule=halving, training_steps=3, checkpoint={"save_every": 1})

    assert again.resume()
    rates = {report.training_step: report.lr for report in again.steps()}
    assert {2: FAST["lr"] / 2, 3: FAST["lr"] / 4} == rates


@pytest.mark.row(27, "a PyTorch schedule of one's own")
def test_an_own_schedule_moves_the_rate(pipeline):
    rows = pipeline(training={"schedule": {"name": f"{MINE}:Halving"}, "lr": 0.008}).rows[1:]

    assert [0.008, 0.004, 0.002] == sorted({float(row["train/lr"]) for row in rows})[::-1]


class Plateau(SchedulePlugin):
    metric = "eval/attack_success_rate"

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=0, factor=0.5, threshold=9.0
        )


@pytest.mark.row(28, "a schedule that follows a metric (`ReduceLROnPlateau`)")
def test_a_schedule_that_follows_the_metric_lowers_the_rate(pipeline):
    plateau = {"name": f"{MINE}:Plateau"}
    ran = pipeline(training={"schedule": plateau, "eval_every": 1, "training_steps": 4})

    assert 1 < len({row["train/lr"] for row in ran.rows[1:]})


class Counting(REINFORCE):
    """Counts the experiences it has seen."""

    count = 0

    def remember(self, graphs):
        self.count += 1
        return {**super().remember(graphs), "count": float(self.count)}

    def state(self):
        return {**super().state(), "count": torch.tensor(self.count)}

    def load_state(self, state):
        super().load_state(state)
        self.count = int(state["count"])


@pytest.mark.row(28)
def test_torchs_plateau_is_a_schedule_of_params(pipeline):
    options = {"patience": 0, "factor": 0.5, "threshold": 9.0}
    named = {"name": "plateau", "options": options}
    ran = pipeline(training={"schedule": named, "eval_every": 1, "lr": 0.008})

    assert [0.008, 0.004, 0.002] == sorted({float(row["train/lr"]) for row in ran.rows[1:]})[::-1]


@pytest.mark.wide
@pytest.mark.row(27)
def test_a_schedule_of_torch_is_named_by_its_class(here):
    arguments = {"step_size": 1, "gamma": 0.5}
    step = {"name": "torch", "options": {"kind": "StepLR", "arguments": arguments}}

    assert {0.01: 1, 0.005: 2} == {r.lr: r.training_step for r in preset(schedule=step).steps()}


@pytest.mark.wide
@pytest.mark.row(29, "state of an algorithm of one's own is saved")
def test_an_algorithms_own_state_goes_on(here):
    counting = {"name": f"{MINE}:Counting"}
    preset(algorithm=counting, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(algorithm=counting, checkpoint={"save_every": 1})
    again.resume()

    assert {2.0} == {report.metrics["train/count"] for report in again.steps()}


class Remembering(Trainer):
    """Has a number of its own to keep."""

    level = 0

    def examine(self, evaluator):
        self.level += 1
        return super().examine(evaluator)

    def state(self):
        return {"level": torch.tensor(self.level)}

    def load_state(self, state):
        self.level = int(state["level"])


@pytest.mark.wide
@pytest.mark.row(30, "state of a trainer of one's own is saved")
def test_a_trainers_own_state_goes_on(here):
    mine = {"name": f"{MINE}:Remembering"}
    preset(trainer=mine, training_steps=1, checkpoint={"save_every": 1}).train()
    again = preset(trainer=mine, checkpoint={"save_every": 1})
    again.resume()

    assert again.level >= 2


@pytest.mark.wide
@pytest.mark.row(31, "logging to W&B or elsewhere")
def test_a_script_sends_every_report_where_it_likes(here):
    sent = []
    progress = preset().train(on_step=lambda report: sent.append(report.metrics))

    assert progress.step == len(sent)


class Noted(Sink):
    """Notes each step and its loss in a file."""

    def write(self, figures, step):
        with Path("noted.txt").open("a", encoding="utf-8") as file:
            file.write(f"{step}\n" if "train/loss" in figures else "")


@pytest.mark.row(31)
def test_the_pipeline_sends_every_report_where_params_say(pipeline):
    ran = pipeline(tracking={"sinks": ["mlflow", f"{MINE}:Noted"]})
    steps = Path("noted.txt").read_text("utf-8").split()

    assert [str(step + 1) for step in range(ran.report["optimizer_steps"])] == steps


@pytest.mark.wide
@pytest.mark.row(32, "seeds of torch and of the environment")
def test_a_seed_decides_the_rollouts():
    def said(seed):
        harness = Harness(sampler_of(seed=seed), dpo(tiny_system(1)), num_episodes=2)
        graphs = harness.experience(0).graphs
        return [node.probe_text for graph in graphs for node in graph.nodes()]

    assert said(1) == said(1) != said(2)


@pytest.mark.row(33, "the final attacker and its tokenizer are saved")
def test_the_attacker_is_saved_in_the_guides_words(here):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    system = tiny_system(1)
    system.attacker.save_pretrained("final_ckpt")
    system.attacker.tokenizer.save_pretrained("final_ckpt")
    model = AutoModelForCausalLM.from_pretrained("final_ckpt")

    assert all(map(torch.equal, model.parameters(), system.attacker.model.parameters()))
    assert AutoTokenizer.from_pretrained("final_ckpt")("why")["input_ids"]


@pytest.mark.wide
@pytest.mark.row(34, "batches and accumulation are the same update")
def test_two_passes_of_four_are_one_of_eight():
    def weights(batch_size, passes):
        own = trained(batch_size=batch_size, gradient_accumulation_steps=passes, training_steps=1)
        return torch.frombuffer(bytearray(own), dtype=torch.float32)

    # An update of Adam is as large as the rate, whatever the gradient; sums differ in the last bit.
    assert torch.allclose(weights(8, 1), weights(4, 2), rtol=0, atol=1e-3 * CONFIG["lr"])


@pytest.mark.wide
@pytest.mark.row(35, "DPO with `ASTProblem` and `ASTSampler`")
def test_the_example_of_the_api_page_trains(here):
    folders = {"attacker": Path("my/attacker"), "target": Path("my/target")}
    system = System.load(SMALL.system, **folders, reference=Path("my/attacker"), is_trained=True)
    trainer = Trainer(
        TrainingConfiguration(**{**CONFIG, "lr": 1e-3}),
        sampler_of(system),
        DPO(DPO.Options(beta=0.1, margin=0.0), system=system),
    )

    before = weights_of(trainer)
    trainer.train()

    assert before != weights_of(trainer)


@pytest.mark.row(36, "full control through the `Harness`")
def test_a_harness_alone_gives_experience_and_batches():
    sampler = sampler_of()
    algorithm = dpo(sampler.system)
    harness = Harness(sampler, algorithm, num_episodes=2)
    optimizer = torch.optim.AdamW(sampler.system.attacker.model.parameters(), 0.01)
    before = [p.detach().clone() for p in sampler.system.attacker.model.parameters()]
    for batch in harness.batches(harness.experience(0), epoch=0, batch_size=4):
        loss, _ = algorithm.step(batch)
        (loss / batch.weight).backward()
        optimizer.step()
        optimizer.zero_grad()

    after = sampler.system.attacker.model.parameters()
    assert not all(map(torch.equal, before, after))


class Parrot(Target):
    """A target without a model: it says what it was told."""

    def digest(self):
        return "parrot"

    def respond(self, conversations, keys, generation, *, tokens_per_batch=16384):
        return [
            Answer(
                (Reply(conversation.messages[-1].text[-generation.max_new_tokens :]),) * len(own)
            )
            for conversation, own in zip(conversations, keys, strict=True)
        ]


RESPOND = Parrot.respond


@pytest.mark.row(37, "a System, or a target, of one's own")
def test_a_target_of_ones_own_keeps_the_contract_and_talks():
    plain = tiny_system(1)
    parrot = Parrot(Section(), surroundings=Surroundings(plain.config))
    check_target(parrot)
    own = System.of(
        plain.attacker, parrot, plain.reference, scorer=plain.scorer, config=plain.config
    )
    sampler = sampler_of(own)
    nodes = [node for graph in rolled_out(sampler, TWO, iteration=0) for node in graph.nodes()]

    assert nodes
    assert all(node.probe_text.endswith(reply) for node in nodes for reply in node.response_texts)


@pytest.mark.row(37)
def test_a_target_of_ones_own_is_named_in_params(pipeline, monkeypatch):
    heard = []

    def respond(*arguments, **settings):
        heard.append(arguments[1])
        return RESPOND(*arguments, **settings)

    monkeypatch.setattr(Parrot, "respond", respond)
    parrot = {"target": {"name": f"{MINE}:Parrot", "options": {}}}
    ran = pipeline(system=parrot, reward={"options": {"nll_weight": 0.0}})

    assert 0 == ran.status, ran.said
    assert heard


class Backwards(TreeSampler):
    """Prompts in the opposite order."""

    def episodes(self, iteration, count):
        return super().episodes(iteration, count)[::-1]


@pytest.mark.row(38, "a sampler of one's own")
def test_an_own_sampler_keeps_the_contract_and_runs(pipeline):
    check_sampler(Backwards)
    plain = pipeline()
    ran = pipeline(rollouts={"sampler": {"name": f"{MINE}:Backwards", "options": {}}})

    assert 0 == ran.status
    assert plain.report["checkpoint_digest"] != ran.report["checkpoint_digest"]


class Imitation(REINFORCE):
    """Learns from every probe alike."""

    def flatten_all(self, graphs):
        turns = [node for graph in graphs for node in graph.nodes()]
        return [PolicyStep(node, 1.0) for node in turns if can_teach(node)]


@pytest.mark.row(39, "an algorithm of one's own")
def test_an_own_algorithm_trains_in_the_pipeline(pipeline):
    ran, plain = (
        pipeline(training={"algorithm": name}) for name in (f"{MINE}:Imitation", "reinforce")
    )

    assert 0 == ran.status
    assert ran.report["checkpoint_digest"] != plain.report["checkpoint_digest"]
    check_algorithm(Imitation)

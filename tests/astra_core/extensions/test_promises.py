"""Whatever a plug-in gives or does, a run ends in one line with its name, never in silence."""

import bad_plugins as bad
import pytest
from each_row import each_row

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    SystemConfiguration,
)
from astra_core.errors import AstraError, PluginError, ScorerError
from astra_core.scorer import Scorer, checked_scores, version_of
from astra_core.scorers.cached import CachedScorer
from astra_parts.presets import Assembly, hf_configuration, hf_trainer
from astra_parts.testing import tiny_language_model, tiny_prompts

TEXTS = [prompt.text for prompt in tiny_prompts(4)]
SHORT = GenerationConfiguration(max_new_tokens=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    tiny_language_model(seed=1).save(path / "attacker")
    return path


def choice(plugin, monkeypatch):
    """The class by import path, as params.yaml names it."""
    monkeypatch.setattr(bad, plugin.__name__, plugin, raising=False)
    plugin.__module__ = bad.__name__
    return Choice(name=f"bad_plugins:{plugin.__name__}")


def train(folder, tmp_path, *, scorer=None, sampler=None, reward=None, **changes):
    """A training step with one bad part."""
    phrases = Choice(name="phrases", options={"phrases": ["bad"]})
    assembly = Assembly(
        system=SystemConfiguration(
            max_context_tokens=64, probe=SHORT, response=SHORT, scorer=scorer or phrases
        ),
        sampler=sampler or Choice(name="tree"),
        reward=reward or Choice(name="adversarial"),
        evaluation=EvaluationConfiguration(num_rollouts=1, depth=1, num_resamples=20),
    )
    own = {name: value.model_dump(mode="json") for name, value in changes.items()}
    algorithm = {"algorithm": {"name": "dpo", "options": {"margin": 0.0}}}
    config = hf_configuration(
        **{"training_steps": 1, "eval_every": 1, "max_nonfinite_steps": 0} | algorithm | own
    )
    hf_trainer(
        folder / "attacker",
        folder / "attacker",
        TEXTS,
        dev_prompts=TEXTS[:2],
        folder=tmp_path / "run",
        config=config,
        assembly=assembly,
    ).train()


def told(caught, kind, plugin):
    """The one line of a failure, looked over: it names the plug-in and quotes no attack."""
    text = str(caught.value)

    assert f"{kind} 'bad_plugins:{plugin.__name__}'" in text
    assert 1 == len(text.splitlines())
    assert not [word for word in bad.SPOKEN if word in text]
    return text


@pytest.mark.real
def test_the_parts_around_a_bad_one_are_good(folder, tmp_path):
    train(folder, tmp_path)


@each_row("name", bad.SCORES)
@each_row("memory", [0, 10])
def test_scores_that_are_none_are_refused(name, memory, monkeypatch):
    plugin = bad.gives(bad.SCORES[name])
    choice(plugin, monkeypatch)
    scorer = plugin(plugin.Options())
    with pytest.raises(ScorerError, match="must give one score in") as caught:
        checked_scores(CachedScorer(scorer, memory) if memory else scorer, ["one", "two"])

    told(caught, "scorer", plugin)


@each_row("name", bad.RAISED)
def test_what_a_scorer_raises_is_one_masked_line(name, monkeypatch):
    plugin = bad.raises(bad.RAISED[name]())
    choice(plugin, monkeypatch)
    with pytest.raises(AstraError) as caught:
        checked_scores(plugin(plugin.Options()), ["one"])

    assert "bad_plugins.py, line" in told(caught, "scorer", plugin)
    # One that could not be reached may be reached later.
    assert (name == "ScorerError") == isinstance(caught.value, ScorerError)


def test_ctrl_c_is_no_failure_of_a_plugin():
    plugin = bad.raises(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        checked_scores(plugin(plugin.Options()), ["one"])


def test_scores_of_numpy_and_torch_are_numbers_and_none_is_fine():
    import numpy as np
    import torch

    for scores in (np.float32([0.0, 1.0]), torch.tensor([0.0, 1.0]), (0, True)):
        plugin = bad.gives(lambda _, own=scores: own)
        found = checked_scores(plugin(plugin.Options()), ["one", "two"])
        assert ([0.0, 1.0], {float}) == (found, set(map(type, found)))
    assert [] == checked_scores(bad.Plain(Scorer.Options()), [])


@each_row("version", [None, 5, "", " "])
def test_a_version_that_names_nothing_is_refused(version, monkeypatch):
    monkeypatch.setattr(bad.NamelessScorer, "version", version)
    with pytest.raises(PluginError, match="must give a text as version") as caught:
        version_of(bad.NamelessScorer(Scorer.Options()))

    told(caught, "scorer", bad.NamelessScorer)


@pytest.mark.real
@each_row(
    ("kind", "plugin", "text"),
    [
        ("scorer", bad.Leaves, "must not end the program, got sys.exit(0) in score"),
        ("scorer", bad.LeavesAtOnce, "got sys.exit(0) in its construction"),
        ("scorer", bad.Unbuilt, "must not fail in its construction, got TypeError"),
        ("scorer", bad.RaisingOptions, "must not fail in reading its options"),
        ("reward", bad.BadReward, "every turn a finite number, got nan"),
        ("reward", bad.NoReward, "one graph per prompt, in order, got None"),
        ("reward", bad.LeavingReward, "got sys.exit(0) in remember"),
        ("reward", bad.ChattyReward, "figures by name from remember, got str"),
        ("sampler", bad.ChattySampler, "a number by name from remember, got str for of"),
        ("sampler", bad.Forgetful, "tensors by name from state, got list"),
        ("trainer", bad.ChattyFigures, "figures by name from figures, got str"),
        ("trainer", bad.ForgetfulTrainer, "tensors by name from state, got None"),
        ("sampler", bad.NoGraphs, "one graph per prompt, in order, got 0 for 2 prompts"),
        ("sampler", bad.BareGraphs, "got no turn"),
        ("sampler", bad.TurnedGraphs, "got another prompt"),
        ("algorithm", bad.NoSteps, "must not fail in flatten, got TypeError"),
        ("algorithm", bad.NoBatch, "a batch whose weight and num_tokens are numbers"),
        ("optimizer", bad.NoOptimizer, "a torch optimiser, got None"),
        (
            "schedule",
            bad.NoSchedule,
            "a torch schedule of the step alone, or name its metric, got None",
        ),
        ("schedule", bad.PlateauSchedule, "got ReduceLROnPlateau"),
        ("schedule", bad.ForeignSchedule, "got one of another"),
        ("trainer", bad.BlindTrainer, "figures by name from examine, got None"),
        ("trainer", bad.LostTrainer, "from examine, got nan"),
        ("trainer", bad.ChattyTrainer, "a StepReport for each update, got str"),
        ("trainer", bad.LeavingTrainer, "got sys.exit(0) in steps"),
    ],
)
def test_a_bad_part_of_any_kind_ends_the_run_in_one_line(
    kind, plugin, text, folder, tmp_path, monkeypatch
):
    with pytest.raises(PluginError) as caught:
        train(folder, tmp_path, **{kind: choice(plugin, monkeypatch)})

    assert text in told(caught, kind, plugin)


@each_row("value", ["text", float("inf")])
def test_a_reward_that_is_no_number_is_refused(value, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bad.BadReward, "value", value)
    with pytest.raises(PluginError, match="every turn a finite number") as caught:
        train(folder, tmp_path, reward=choice(bad.BadReward, monkeypatch))

    told(caught, "reward", bad.BadReward)


@pytest.mark.real
@each_row("name", bad.LOSSES)
def test_a_step_that_gives_no_loss_is_refused(name, folder, tmp_path, monkeypatch):
    plugin = bad.stepping(bad.LOSSES[name])
    with pytest.raises(PluginError, match="from step") as caught:
        train(folder, tmp_path, algorithm=choice(plugin, monkeypatch))

    told(caught, "algorithm", plugin)


def test_a_loss_that_is_not_finite_is_still_skipped_and_counted(folder, tmp_path, monkeypatch):
    plugin = bad.stepping(lambda loss, figures: (loss * float("nan"), figures))
    with pytest.raises(AstraError, match="max_nonfinite_steps allows"):
        train(folder, tmp_path, algorithm=choice(plugin, monkeypatch))

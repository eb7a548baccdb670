"""Plug-ins that are none, or do what none may: each named here is one line wherever it is used."""

# ruff: noqa: ARG002, ARG005, N818 - what they are called with is not what they are bad at

import sys

import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from astra_core.algorithms.dpo import DPO
from astra_core.config import Section
from astra_core.errors import DataError, ScorerError
from astra_core.reward import Reward
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.scorer import Scorer
from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.trainer import Trainer

ATTACK = "you stupid idiot"  # what a prompt or a reply may say
SPOKEN = ("stupid", "idiot")


class Plain(Scorer):
    """A scorer as it should be, to derive bad ones from."""

    version = "plain 1"

    def score(self, texts):
        return [0.5] * len(texts)


class NotDerived:
    version = "x"

    def score(self, texts):
        return [0.5] * len(texts)


class Abstract(Scorer):
    version = "x"


class OddOptions(Plain):
    Options = 5


class ForeignOptions(Plain):
    class Options:
        """No section."""


class RaisingOptions(Plain):
    class Options(Section):
        def __init__(self, **_entries):
            raise RuntimeError(ATTACK)


class OddGives(TreeSampler):
    gives = "siblings"


class OddNeeds(DPO):
    needs = 5


def gives(value, base=Plain):
    """A scorer whose scores are what ``value`` says of the texts."""
    return type("Given", (base,), {"score": lambda self, texts: value(texts)})


SCORES = {
    "None": lambda texts: None,
    "text": lambda texts: "0.5" * len(texts),
    "texts": lambda texts: [ATTACK] * len(texts),
    "nested": lambda texts: [[0.5]] * len(texts),
    "not a number": lambda texts: [float("nan")] * len(texts),
    "infinite": lambda texts: [float("inf")] * len(texts),
    "negative": lambda texts: [-0.1] * len(texts),
    "above 1": lambda texts: [1.1] * len(texts),
    "complex": lambda texts: [0.5j] * len(texts),
    "Nones": lambda texts: [None] * len(texts),
    "too many": lambda texts: [0.5] * (len(texts) + 1),
    "too few": lambda texts: [0.5] * (len(texts) - 1),
    "one number": lambda texts: 0.5,
    "by name": lambda texts: dict.fromkeys(texts, 0.5),
    "a matrix": lambda texts: torch.full((len(texts), 2), 0.5),
}


def _raises(error):
    def act(*_arguments, **_parts):
        raise error

    return act


class Custom(Exception):
    """Of somebody else's, built otherwise than by a message."""

    def __init__(self, number, text):
        super().__init__(number, text)


class CustomData(DataError):
    def __init__(self, number, text):
        super().__init__(f"{number} {text}")


RAISED = {
    "RuntimeError": lambda: RuntimeError(ATTACK),
    "ValueError": lambda: ValueError(ATTACK),
    "KeyError": lambda: KeyError(ATTACK),
    "OSError": lambda: OSError(5, ATTACK),
    "a file of that name": lambda: FileNotFoundError(2, "x", ATTACK),
    "ImportError": lambda: ImportError(ATTACK),
    "SyntaxError": lambda: SyntaxError(ATTACK),
    "UnicodeError": lambda: UnicodeDecodeError("utf-8", ATTACK.encode(), 0, 1, ATTACK),
    "StopIteration": lambda: StopIteration(ATTACK),
    "Custom": lambda: Custom(1, ATTACK),
    "CustomData": lambda: CustomData(1, ATTACK),
    "ScorerError": lambda: ScorerError(ATTACK),
    "sys.exit": lambda: SystemExit(ATTACK),
    "a group": lambda: ExceptionGroup(ATTACK, [ValueError(ATTACK)]),
}


def raises(error):
    """A scorer that raises."""
    return type("Raising", (Plain,), {"score": _raises(error)})


class Leaves(Plain):
    def score(self, texts):
        sys.exit(0)


class LeavesAtOnce(Plain):
    def __init__(self, options):
        super().__init__(options)
        sys.exit(0)


class Unbuilt(Plain):
    def __init__(self, options, phrases):
        """Asks for what nobody gives."""


class NamelessScorer(Plain):
    version = None


class BadReward(AdversarialReward):
    """Assigns what ``value`` says; None takes graphs away."""

    value = float("nan")

    def assign(self, graphs):
        from dataclasses import replace

        return [
            replace(graph, children=tuple(replace(n, reward=self.value) for n in graph.children))
            for graph in super().assign(graphs)
        ]


class NoReward(Reward):
    def assign(self, graphs):
        return None


class LeavingReward(AdversarialReward):
    def remember(self, graphs):
        sys.exit(0)


class ChattyReward(AdversarialReward):
    def remember(self, graphs):
        return "fine"


class ChattySampler(TreeSampler):
    def remember(self, graphs):
        return {"of": "course"}


class Forgetful(TreeSampler):
    def state(self):
        return [1.0]

    def load_state(self, state):
        pass


class NoGraphs(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        return []


class BareGraphs(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        from astra_core.rollout import Graph

        return [Graph(prompt, iteration, ()) for prompt in prompts]


class TurnedGraphs(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        return super().roll_out(prompts, iteration=iteration)[::-1]


class NoSteps(DPO):
    def flatten(self, graph):
        return None


class NoBatch(DPO):
    def collate(self, steps):
        return steps


def stepping(value):
    """An algorithm whose step gives what ``value`` says of the true loss."""

    def step(self, batch):
        loss, figures = DPO.step(self, batch)
        return value(loss, figures)

    return type("Stepping", (DPO,), {"step": step})


LOSSES = {
    "None": lambda loss, figures: None,
    "the loss alone": lambda loss, figures: loss,
    "a number": lambda loss, figures: (0.5, figures),
    "a vector": lambda loss, figures: (loss.repeat(2), figures),
    "without gradient": lambda loss, figures: (loss.detach(), figures),
    "an integer": lambda loss, figures: (loss.long(), figures),
    "no figures": lambda loss, figures: (loss, None),
    "a text figure": lambda loss, figures: (loss, {"x": ATTACK}),
}


class NoOptimizer(OptimizerPlugin):
    def optimizer(self, groups, lr):
        return None


class BareOptimizer(OptimizerPlugin):
    """Not bad: it has no options at all, so none of decay."""

    class Options(Section):
        """Empty."""

    def optimizer(self, groups, lr):
        return torch.optim.SGD(groups, lr=lr)


class StuckOptimizer(OptimizerPlugin):
    """Can be built, but not stepped."""

    class Stuck(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError(ATTACK)

    def optimizer(self, groups, lr):
        return self.Stuck(groups, lr=lr)


class StuckSchedule(SchedulePlugin):
    """Can be built, which asks for a first step, but not moved."""

    class Stuck(LambdaLR):
        def step(self, epoch=None):
            if self.last_epoch >= 0:
                raise RuntimeError(ATTACK)
            super().step(epoch)

    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return self.Stuck(optimizer, lambda step: 1.0)


class NoSchedule(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return None


class PlateauSchedule(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return ReduceLROnPlateau(optimizer)


class ForeignSchedule(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        return LambdaLR(other, lambda step: 1.0)


class BlindTrainer(Trainer):
    def examine(self, evaluator):
        return None


class LostTrainer(Trainer):
    def examine(self, evaluator):
        return super().examine(evaluator) | {self.config.metric: float("nan")}


class ChattyFigures(Trainer):
    def figures(self):
        return ATTACK


class ForgetfulTrainer(Trainer):
    def state(self):
        return None

    def load_state(self, state):
        pass


class ChattyTrainer(Trainer):
    def steps(self):
        yield ATTACK


class LeavingTrainer(Trainer):
    def end(self):
        sys.exit(0)

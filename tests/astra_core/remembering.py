"""A sampler and a trainer with state of their own, for the tests of checkpoints."""

import torch

from astra_core.samplers.tree import TreeSampler
from astra_core.training.trainer import Trainer


class Curriculum(TreeSampler):
    """Takes the prompts that scored lowest so far."""

    def __init__(self, *arguments, **parts):
        super().__init__(*arguments, **parts)
        self.rates = torch.zeros(len(self.prompts), dtype=torch.float64)

    def episodes(self, iteration, count):  # noqa: ARG002 - those who scored lowest, at any time
        order = sorted(range(len(self.prompts)), key=lambda place: float(self.rates[place]))
        return tuple(self.prompts[place] for place in order[:count])

    def remember(self, graphs):
        places = {prompt.prompt_id: place for place, prompt in enumerate(self.prompts)}
        for graph in graphs:
            scores = [node.score for node in graph.nodes() if not node.has_failed]
            self.rates[places[graph.prompt.prompt_id]] += 0.1 + sum(scores) / len(scores)
        return {"hardest": float(self.rates.min()), "easiest": float(self.rates.max())}

    def state(self):
        return {"rates": self.rates}

    def load_state(self, state):
        self.rates.copy_(state["rates"])


class Momentum(Trainer):
    """Learns from an experience twice whenever the mean reward of the last ones has risen."""

    def __init__(self, *arguments, **parts):
        super().__init__(*arguments, **parts)
        self.seen = torch.zeros(2, dtype=torch.float64)

    def windows(self, experience):
        yield from super().windows(experience)
        self.seen = torch.tensor([self.seen[1], experience.metrics["rollout/reward"]]).double()
        if self.seen[1] > self.seen[0]:
            yield from super().windows(experience)

    def figures(self):
        return {"seen": float(self.seen.mean())}

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen = state["seen"]

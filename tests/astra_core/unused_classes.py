"""Classes as a user's file has them: of each its kind, its code, and what is wrong with it."""

WRONG = {
    "windows beside its own steps": (
        "trainer",
        """
class Mine(Trainer):
    def steps(self):
        experience = self.harness.experience(0)
        yield self.update(list(experience), experience)
    def windows(self, experience):
        yield list(experience)
""",
        "must not override windows(), which nothing would call, since Mine.steps() does not",
    ),
    "save beside its own steps": (
        "trainer",
        """
class Mine(Trainer):
    def steps(self):
        experience = self.harness.experience(0)
        yield self.update(list(experience), experience)
    def save(self):
        pass
""",
        "must not override save()",
    ),
    "steps beside its own train": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        for window in self.windows(self.harness.experience()):
            self.update(window)
    def steps(self):
        yield
""",
        "must not override steps(), which nothing would call, since Mine.train() does not",
    ),
    "examine beside its own evaluate": (
        "trainer",
        """
class Mine(Trainer):
    def evaluate(self):
        pass
    def restore_best(self):
        pass
    def examine(self, evaluator):
        return {}
""",
        "must not override examine()",
    ),
    "flatten where flatten_all is ours": (
        "algorithm",
        """
class Mine(REINFORCE):
    def flatten(self, graph):
        return []
""",
        "must not override flatten(), which nothing would call, since REINFORCE.flatten_all()",
    ),
    "grow beside its own roll_out": (
        "sampler",
        """
class Mine(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        return []
    def grow(self, prompts, widths, **settings):
        return []
""",
        "must not override grow(), which nothing would call, since Mine.roll_out() does not",
    ),
    "a state that is never read": (
        "algorithm",
        """
class Mine(DPO):
    def state(self):
        return {}
""",
        "must override load_state() beside state()",
    ),
    "a state that is never written": (
        "reward",
        """
class Mine(AdversarialReward):
    def load_state(self, state):
        pass
""",
        "must override state() beside load_state()",
    ),
    "weights that are not stored": (
        "algorithm",
        """
class Mine(DPO):
    def parameters(self):
        return ()
""",
        "must override state() beside parameters()",
    ),
    "a misspelled hook": (
        "trainer",
        """
class Mine(Trainer):
    def evalute(self):
        pass
""",
        "must name its methods as ours, got evalute(); did you mean evaluate()?",
    ),
    "another system's hook": (
        "trainer",
        """
class Mine(Trainer):
    def _eval_dev(self, step, tag="dev"):
        pass
""",
        "must not rely on _eval_dev(), which nothing calls; here it is Trainer.examine",
    ),
    "an optimiser that our loop does not ask for": (
        "trainer",
        """
class Mine(Trainer):
    @property
    def optimizer(self):
        return None
""",
        "must not override optimizer(), which nothing would call",
    ),
    "a train that would only be iterated": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        yield from self.steps()
""",
        "must not yield in train(), which is called and not iterated; yield in steps()",
    ),
    "a constructor that takes no more": (
        "trainer",
        """
class Mine(Trainer):
    def __init__(self, config, environment, algorithm, dev_prompts=None):
        super().__init__(config, environment, algorithm)
""",
        "must be built from config, sampler, algorithm and ['evaluator',",
    ),
}
RIGHT = {
    "asked by super": (
        "trainer",
        """
class Mine(Trainer):
    def train(self, on_step=None):
        return super().train(on_step)
    def windows(self, experience):
        return super().windows(experience)
""",
    ),
    "asked by a helper of its own": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        self._once()
    def _once(self):
        experience = self.harness.experience()
        for window in self.windows(experience):
            self.update(window, experience)
    def windows(self, experience):
        return super().windows(experience)
    def _eval_dev(self):
        pass
    def evaluate(self):
        self._eval_dev()
""",
    ),
    "asked by a function of its module": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        learn(self)
    def windows(self, experience):
        return super().windows(experience)
def learn(trainer):
    for window in trainer.windows(trainer.harness.experience()):
        pass
""",
    ),
    "asked by another class of its module": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        Loop().run(self)
    def windows(self, experience):
        return super().windows(experience)
class Loop:
    def run(self, trainer):
        return [window for window in trainer.windows(trainer.harness.experience())]
""",
    ),
    "asked around a train of its own": (
        "trainer",
        """
class Mine(Trainer):
    def train(self):
        self.update([], None)
    def save(self):
        super().save()
    def examine(self, evaluator):
        return super().examine(evaluator)
    def end(self):
        return ""
""",
    ),
    "all that belongs to a state": (
        "algorithm",
        """
class Mine(DPO):
    def parameters(self):
        return ()
    def state(self):
        return {}
    def load_state(self, state):
        pass
""",
    ),
    "weights of which ours stores all": (
        "algorithm",
        """
class Mine(PPO):
    def parameters(self):
        return super().parameters()
""",
    ),
    "abstract methods that nothing calls": (
        "algorithm",
        """
from astra_core.algorithm import Algorithm
class Mine(Algorithm):
    def flatten(self, graph):
        return []
    def flatten_all(self, graphs):
        return []
    def collate(self, steps):
        return None
    def step(self, batch):
        return None
""",
    ),
    "an optimiser that its own loop asks for": (
        "trainer",
        """
class Mine(Trainer):
    @property
    def optimizer(self):
        return None
    def train(self):
        self.optimizer.step()
""",
    ),
    "the algorithm that a trainer builds": (
        "trainer",
        """
class Mine(Trainer):
    @classmethod
    def algorithm_for(cls, config, system):
        return super().algorithm_for(config, system)
""",
    ),
    "the runs of an iteration": (
        "sampler",
        """
class Mine(TreeSampler):
    def runs(self, iteration, count):
        return super().runs(iteration, count)
""",
    ),
    "where a target of ours works": (
        "target",
        """
from astra_core.targets.causal_lm import CausalLM
class Mine(CausalLM):
    works_on = "elsewhere"
    def remembering(self, max_bytes, *, is_bf16=False):
        return super().remembering(max_bytes, is_bf16=is_bf16)
""",
    ),
    "all that an executor is asked for": (
        "executor",
        """
from astra_core.executors.local import LocalExecutor
class Mine(LocalExecutor):
    def run(self, work, shards, **settings):
        return super().run(work, shards, **settings)
""",
    ),
    "all that a sink is asked for": (
        "sink",
        """
from astra_core.sink import Sink
class Mine(Sink):
    @classmethod
    def check(cls):
        pass
    def write(self, figures, step):
        pass
    def written(self):
        return []
    def finish(self, status):
        pass
""",
    ),
    "how a schedule is moved": (
        "schedule",
        """
from astra_core.training.optimization.optimizers import SchedulePlugin
class Mine(SchedulePlugin):
    def schedule(self, optimizer, *, warmup_steps, training_steps):
        return None
    def move(self, schedule, figures=None):
        schedule.step()
""",
    ),
    "a helper of another name": (
        "trainer",
        """
class Mine(Trainer):
    def hardest(self):
        return 1
""",
    ),
    "a hook of ours in a part between": (
        "trainer",
        """
class Between(Trainer):
    def windows(self, experience):
        yield list(experience)
class Mine(Between):
    def end(self):
        return super().end()
""",
    ),
}

import pytest
from tiny_training import EXAMINATION, configured, sampler_of

from astra_core.evaluator import Evaluator
from astra_core.models.language_model import LanguageModel
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.algorithms.rloo import RLOO
from astra_parts.testing import tiny_prompts, tiny_system
from plugins.thorough import ThoroughTrainer


@pytest.mark.real
def test_it_judges_widens_and_saves_in_its_own_way(tmp_path):
    system = tiny_system(1)
    options = {"num_hardest": 1, "widen_every": 1}
    choice = {"name": "plugins.thorough:ThoroughTrainer", "options": options}
    trainer = ThoroughTrainer(
        configured(trainer=choice, metric="eval/hardest", batch_size=4, eval_every=3),
        sampler_of(system),
        RLOO(RLOO.Options(), system=system),
        evaluator=Evaluator(
            EXAMINATION,
            prompts=tiny_prompts(4),
            reward=AdversarialReward(AdversarialReward.Options()),
            seed=9,
        ),
        store=CheckpointStore(tmp_path),
    )
    updates = [report.training_step for report in trainer.steps()]
    point = trainer.progress.evaluations[0]

    # 24 probes in passes of 4: windows of 1, 2 and 3 of them.
    assert [6, 3, 2] == [updates.count(step) for step in (1, 2, 3)]
    assert point.metrics["eval/hardest"] <= point.metrics["eval/score_mean"]
    assert "eval/hardest" == trainer.best.metric
    saved = sorted(path.name for path in tmp_path.glob("model_*"))
    assert [f"model_{step:06d}" for step in range(4)] == saved
    assert LanguageModel.load(tmp_path / saved[-1]).num_parameters > 0

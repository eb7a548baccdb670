"""Every option of every algorithm changes what is learned or kept."""

import pytest
import torch
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.registry import BUILT_INS, resolve

KL = {"kl": "loss", "kl_coefficient": 0.1}
MOVING = {**KL, "kl_control": "proportional", "kl_target_nats": 0.1}
CREDIT = [
    ({}, {"backup": "max"}),
    ({}, {"discount": 0.5}),
    ({}, {"horizon": 2}),
    ({}, {"turn_weights": "visits"}),
]
PRICE = [
    ({"kl": "none"}, {"kl": "loss"}),
    ({"kl": "none"}, {"kl": "reward"}),
    ({**KL, "kl_estimator": "k3"}, {"kl_estimator": "k2"}),
    (KL, {"kl_coefficient": 0.5}),
    (KL, {"kl_importance_weighted": True}),
    ({}, {"clip_reward": 0.1}),
    (MOVING, {"kl_control": "stepped"}),
    (MOVING, {"kl_target_nats": 100.0}),
    (MOVING, {"kl_horizon": 400.0}),
]
WARM = [({}, {"entropy_coefficient": 0.1})]
COUNT = [({"aggregation": "token_mean"}, {"aggregation": "sequence_sum"})]
COPY = [({}, {"aggregation": "sequence_mean"})]
CLIP = [({}, {"clip_low": 0.01}), ({}, {"clip_high": 0.01})]
SOFT = {"surrogate": "sapo"}
BOUNDS = [
    *CLIP,
    ({}, {"dual_clip": 1.01}),
    ({}, {"surrogate": "cispo"}),
    ({"surrogate": "cispo"}, {"max_ratio": 0.9}),
    ({}, SOFT),
    (SOFT, {"temperature_good": 2.0}),
    (SOFT, {"temperature_bad": 2.0}),
]
PAIRS = [
    ({}, {"pairs": "all"}),
    ({}, {"margin": 0.3}),
    ({}, {"midpoint": 1.0}),
    ({}, {"backup": "mean"}),
    ({"backup": "mean"}, {"discount": 0.1}),
    ({"pairs": "all", "backup": "mean"}, {"horizon": 1}),
    ({}, {"turn_weights": "visits"}),
]
LOSSES = ("hinge", "ipo", "discopop", "nca", "bco", "sppo", "apo_zero", "apo_down")
PREFERENCE = [*PAIRS, ({}, {"beta": 0.5}), ({}, {"length_normalised": True})]
CHANGES = {
    "dpo": [
        *PREFERENCE,
        *(({}, {"loss": loss}) for loss in LOSSES),
        ({}, {"loss": {"sigmoid": 2.0}}),
        ({"loss": {"sigmoid": 1.0}}, {"loss": {"sigmoid": 1.0, "sft": 0.2}}),
        ({"loss": {"sigmoid": 1.0}}, {"loss": {"sigmoid": 1.0, "bco": 0.2}}),
        ({"loss": "robust"}, {"label_smoothing": 0.2}),
        ({"label_smoothing": 0.1, "loss": "robust"}, {"loss": "exo"}),
        ({"label_smoothing": 0.1, "loss": "exo"}, {"label_smoothing": 0.2}),
        *(({}, {"divergence": other}) for other in ("forward_kl", "jensen_shannon", "alpha")),
        ({"divergence": "alpha"}, {"divergence_alpha": 0.1}),
        ({}, {"on_policy_weights": True}),
    ],
    "trajectory_balance": [
        ({}, {"pairs": "best_worst"}),
        ({}, {"margin": 0.3}),
        ({}, {"midpoint": 1.0}),
        ({}, {"backup": "none"}),
        ({}, {"discount": 0.1}),
        ({}, {"horizon": 1}),
        ({}, {"temperature": 0.5}),
        ({}, {"turn_weights": "visits"}),
    ],
    "reinforce": [
        *CREDIT,
        *PRICE,
        *COUNT,
        *WARM,
        *(({}, {"baseline": baseline}) for baseline in ("none", "leave_one_out")),
        ({}, {"importance": "none"}),
        ({}, {"max_ratio": 0.9}),
    ],
    "rloo": [*CREDIT, *PRICE, *COUNT, *WARM, *CLIP, ({}, {"whiten_advantages": True})],
    "grpo": [
        *CREDIT,
        *PRICE,
        *COUNT,
        *WARM,
        *BOUNDS,
        ({}, {"scale": "none"}),
        ({}, {"scale": "batch"}),
        *(({}, {"compare": how}) for how in ("conversations", "prompt", "runs")),
        ({}, {"min_spread": 0.3}),
        ({}, {"drop_flat_groups": True}),
        ({}, {"ratio": "sequence"}),
    ],
    "ppo": [
        *PRICE,
        *COUNT,
        *WARM,
        *BOUNDS,
        ({}, {"discount": 0.9}),
        ({}, {"turn_discount": 0.5}),
        ({}, {"decay": 0.5}),
        ({}, {"turn_weights": "visits"}),
        ({}, {"final_turn": "terminated"}),
        ({}, {"whiten_advantages": False}),
        ({}, {"value_coefficient": 0.5}),
        ({}, {"value_clip": 0.01}),
        ({}, {"value_clip": None}),
    ],
    "expert_iteration": [
        *COPY,
        ({}, {"selection": "threshold"}),
        ({}, {"k": 2}),
        ({}, {"fraction": 0.5}),
        ({"selection": "threshold"}, {"threshold": 3.0}),
        ({"selection": "reward_weighted"}, {"minimum": 1.0}),
        ({"selection": "reward_weighted"}, {"exploration": 0.5}),
    ],
    "sft": [*PAIRS, *COPY],
    "distillation": [
        *COUNT,
        *CLIP,
        ({}, {"teacher": "target"}),
        ({}, {"coefficient": 2.0}),
        ({}, {"discount": 0.5}),
        ({"discount": 0.5}, {"horizon": 2}),
    ],
}


@each_row("name", BUILT_INS["algorithm"])
def test_no_option_is_left_out_below(name):
    changed = {field for _, change in CHANGES[name] for field in change}

    assert set(resolve("algorithm", name).Options.model_fields) == changed


# One of each family is quick; the others need a training each, too.
QUICK = ("dpo",)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.real) for name in CHANGES],
)
def test_an_option_changes_what_is_learned_or_kept(name, experience, make_algorithm, nudge):
    def outcome(options):
        algorithm = make_algorithm(name, **options)
        steps = algorithm.flatten_all(experience)
        figures = algorithm.remember(experience)
        # Off the policy that sampled, or no clip and no cap would bind.
        nudge(algorithm.system)
        with torch.no_grad():
            for parameter in algorithm.parameters():
                parameter.mul_(3.0)
        batch = algorithm.collate(steps)
        loss = algorithm.step(batch)[0] / batch.weight
        loss.backward()
        weights = algorithm.system.attacker.model.parameters()
        gradients = [own.grad for own in weights if own.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        state = [float(value.sum()) for value in algorithm.state().values()]
        return [float(loss.detach()), float(norm), *figures.values(), *state]

    plain, without_effect = {}, []
    for given, change in CHANGES[name]:
        if str(given) not in plain:
            plain[str(given)] = outcome(given)
        changed = outcome({**given, **change})
        if changed == pytest.approx(plain[str(given)], rel=1e-6, abs=1e-9):
            without_effect.append((given, change))
    assert [] == without_effect


def test_running_baseline_is_what_earlier_experience_gave(experience, make_algorithm):
    algorithm = make_algorithm("reinforce", baseline="running")
    first = algorithm.flatten_all(experience)
    figures = algorithm.remember(experience)
    second = algorithm.flatten_all(experience)

    differences = [a.advantage - b.advantage for a, b in zip(first, second, strict=True)]
    assert [figures["running_mean"]] * len(first) == pytest.approx(differences)


NEW_WEIGHTS = [
    ("dpo", {}),
    *(("dpo", {"loss": loss}) for loss in (*LOSSES, {"sigmoid": 1.0, "sft": 0.2})),
    ("dpo", {"loss": "exo", "label_smoothing": 0.1}),
    *(("dpo", {"divergence": one}) for one in ("forward_kl", "jensen_shannon", "alpha")),
    ("dpo", {"on_policy_weights": True}),
    ("grpo", {}),
    ("grpo", {"surrogate": "cispo"}),
    ("grpo", {"surrogate": "sapo"}),
    ("grpo", {"scale": "batch"}),
    ("grpo", {"scale": "none"}),
    ("grpo", {"clip_reward": 0.01}),
    ("grpo", {"entropy_coefficient": 0.1}),
    ("grpo", KL),
    ("grpo", {**KL, "kl_importance_weighted": True}),
    ("ppo", {}),
    ("ppo", {"surrogate": "sapo"}),
    ("ppo", {"clip_reward": 0.01}),
]


@pytest.mark.real
def test_an_option_changes_the_trained_weights():
    """Of a whole run with several updates per experience; no two runs end alike."""
    found = {}
    for name, options in NEW_WEIGHTS:
        config = configured(
            algorithm={"name": name},
            training_steps=1,
            epochs_per_experience=2,
            eval_first=False,
            eval_every=100,
        )
        trainer = trainer_of(config, is_evaluated=False, **options)
        trainer.train()
        found[name, str(options)] = weights_of(trainer)

    assert len(NEW_WEIGHTS) == len(set(found.values()))

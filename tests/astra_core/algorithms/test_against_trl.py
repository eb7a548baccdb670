"""The whole loss, from token ids to one number, beside TRL's own.

TRL comes with the ``dev`` extra; the product does not know it. Where its definition differs from
ours, see docs/algorithms.md, the option that makes ours theirs is chosen.
"""

import copy
import dataclasses
import os

import pytest
import torch

from astra_core.engine.logprobs import token_logprobs

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
# Its import warns about other libraries, which pytest would make an error of ours.
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

TRLS_DIVERGENCES = {
    "forward_kl": "forward_kl",
    "jensen_shannon": "js_divergence",
    "alpha": "alpha_divergence",
}
QUIET = {
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}


def saved(model, folder):
    """The model as a Hugging Face folder, and a tokenizer that can pad."""
    model.save(folder)
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    return str(folder), tokenizer


def ours(algorithm, batch):
    return float(algorithm.step(batch)[0].detach()) / batch.weight


def policy_inputs(batch):
    """One of our batches as TRL's."""
    width = batch.rows.input_ids.shape[1] - batch.mask.shape[1]
    return {
        "prompt_ids": batch.rows.input_ids[:, :width],
        "prompt_mask": batch.rows.attention_mask[:, :width],
        "completion_ids": batch.rows.continuation_ids,
        "completion_mask": batch.mask.long(),
        "advantages": batch.advantages[:, 0],
        "old_per_token_logps": batch.behaviour_logprobs,
        "old_logps": (batch.behaviour_logprobs * batch.mask).sum(1),
        "ref_per_token_logps": batch.reference_logprobs,
        "num_items_in_batch": batch.mask.sum().float(),
    }


def policy_trainer(kind, algorithm, folder, **options):
    import datasets
    import trl

    config = {"rloo": trl.RLOOConfig, "grpo": trl.GRPOConfig}[kind]
    trainer = {"rloo": trl.RLOOTrainer, "grpo": trl.GRPOTrainer}[kind]
    model, tokenizer = saved(algorithm.system.attacker, folder / "attacker")
    built = trainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config(
            output_dir=str(folder),
            num_generations=2,
            per_device_train_batch_size=2,
            max_completion_length=6,
            **QUIET,
            **options,
        ),
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list([{"prompt": "you are"}] * 2),
    )
    built.current_gradient_accumulation_steps = 1
    built.model.train()
    return built


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {"loss_type": "dapo"}),
        ({"aggregation": "sequence_mean"}, {"loss_type": "grpo"}),
        ({"aggregation": "constant_length"}, {"loss_type": "dr_grpo"}),
        ({"clip_low": 0.05, "clip_high": 0.1}, {"epsilon": 0.05, "epsilon_high": 0.1}),
        (
            {"ratio": "sequence", "aggregation": "sequence_mean"},
            {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        ),
        ({"kl": "loss", "kl_coefficient": 0.1}, {"beta": 0.1, "use_bias_correction_kl": False}),
        ({"kl": "loss", "kl_coefficient": 0.1, "kl_importance_weighted": True}, {"beta": 0.1}),
        ({"surrogate": "cispo"}, {"loss_type": "cispo", "epsilon_high": 5.0}),
        ({"surrogate": "cispo", "max_ratio": 0.9}, {"loss_type": "cispo", "epsilon_high": 0.9}),
        ({"surrogate": "sapo", "aggregation": "sequence_mean"}, {"loss_type": "sapo"}),
        ({"entropy_coefficient": 0.5}, {"entropy_coef": 0.5}),
        ({"dual_clip": 1.3}, {"delta": 1.3}),
    ],
)
def test_grpo_is_trls(options, theirs, experience, make_algorithm, nudge, tmp_path):
    algorithm = make_algorithm("grpo", **options)
    steps = [step for graph in experience[:2] for step in algorithm.flatten(graph)]
    nudge(algorithm.system)
    batch = algorithm.collate(steps)
    # A reference near the attacker: above 10 nats a token our k3 is held, TRL's is not.
    draw = torch.Generator().manual_seed(1)
    now = token_logprobs(algorithm.system.attacker.model, batch.rows).detach()
    near = now + 0.5 * torch.randn(batch.mask.shape, generator=draw)
    batch = dataclasses.replace(batch, reference_logprobs=near)
    trainer = policy_trainer("grpo", algorithm, tmp_path, **theirs)
    loss = trainer._compute_loss(trainer.model, policy_inputs(batch))

    assert float(loss.detach()) == pytest.approx(ours(algorithm, batch), rel=1e-4, abs=1e-6)


def test_group_advantages_are_trls(experience, make_algorithm):
    """TRL adds 1e-4 to the spread; ours divides by it alone."""
    steps = make_algorithm("grpo", backup="none").flatten(experience[0])
    rewards = torch.tensor([step.node.reward for step in steps[:2]])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)

    assert expected.tolist() == pytest.approx([s.advantage for s in steps[:2]], rel=2e-3)


def test_rloo_is_trls(experience, make_algorithm, nudge, tmp_path):
    algorithm = make_algorithm("rloo")
    steps = [step for graph in experience[:2] for step in algorithm.flatten(graph)]
    nudge(algorithm.system, 0.01)
    batch = algorithm.collate(steps)
    trainer = policy_trainer("rloo", algorithm, tmp_path)
    loss = trainer._compute_loss(trainer.model, policy_inputs(batch))

    assert float(loss.detach()) == pytest.approx(ours(algorithm, batch), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "loss_type"),
    [
        ("dpo", {}, "sigmoid"),
        ("dpo", {"loss": "hinge"}, "hinge"),
        ("dpo", {"loss": "robust", "label_smoothing": 0.2}, "robust"),
        ("dpo", {"length_normalised": True}, "sigmoid_norm"),
        ("dpo", {"loss": "ipo", "length_normalised": True}, "ipo"),
        ("dpo", {"loss": "exo", "label_smoothing": 0.2}, "exo_pair"),
        ("dpo", {"loss": "discopop"}, "discopop"),
        ("dpo", {"loss": "nca"}, "nca_pair"),
        ("dpo", {"loss": "bco"}, "bco_pair"),
        ("dpo", {"loss": "sppo"}, "sppo_hard"),
        ("dpo", {"loss": "apo_zero"}, "apo_zero"),
        ("dpo", {"loss": "apo_down"}, "apo_down"),
        ("dpo", {"loss": "aot"}, "aot_unpaired"),
        ("dpo", {"divergence": "forward_kl"}, "sigmoid"),
        ("dpo", {"divergence": "jensen_shannon", "loss": "hinge"}, "hinge"),
        # Theirs is 1 minus the paper's.
        ("dpo", {"divergence": "alpha", "divergence_alpha": 0.2}, "sigmoid"),
        ("dpo", {"on_policy_weights": True}, "sigmoid"),
        ("dpo", {"loss": {"hinge": 1.0, "bco": 1.0}}, "hinge bco_pair"),
    ],
)
def test_pair_losses_are_trls(
    name, options, loss_type, experience, make_algorithm, nudge, tmp_path
):
    import datasets
    import trl
    from transformers import AutoModelForCausalLM

    algorithm = make_algorithm(name, **options)
    pairs = [pair for graph in experience[:2] for pair in algorithm.flatten(graph)]
    nudge(algorithm.system)
    model, tokenizer = saved(algorithm.system.attacker, tmp_path / "attacker")
    reference, _ = saved(algorithm.system.reference, tmp_path / "reference")
    trainer = trl.DPOTrainer(
        model=model,
        ref_model=AutoModelForCausalLM.from_pretrained(reference),
        args=trl.DPOConfig(
            output_dir=str(tmp_path),
            loss_type=loss_type.split(),
            f_divergence_type=TRLS_DIVERGENCES.get(options.get("divergence"), "reverse_kl"),
            f_alpha_divergence_coef=1.0 - options.get("divergence_alpha", 0.5),
            use_weighting=options.get("on_policy_weights", False),
            beta=0.1,
            label_smoothing=options.get("label_smoothing", 0.0),
            **QUIET,
        ),
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": "you", "chosen": " are", "rejected": " bad"}] * 2
        ),
    )
    trainer.model.train()
    nodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    ids = [node.context_ids + node.probe_ids for node in nodes]
    width = max(map(len, ids))
    rows = torch.zeros(3, len(ids), width, dtype=torch.long)
    for row, (node, own) in enumerate(zip(nodes, ids, strict=True)):
        rows[0, row, : len(own)] = torch.tensor(own)
        rows[1, row, : len(own)] = 1
        rows[2, row, len(node.context_ids) : len(own)] = 1
    inputs = {"input_ids": rows[0], "attention_mask": rows[1], "completion_mask": rows[2]}
    loss = trainer._compute_loss(trainer.model, inputs, return_outputs=False)

    found = ours(algorithm, algorithm.collate(pairs))
    assert float(loss.detach()) == pytest.approx(found, rel=1e-4, abs=1e-6)

"""The surrogates as options of grpo and ppo: figures, limit cases and what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.models.rows import pad_rows
from astra_parts.algorithms.grpo import GRPO
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.algorithms.ppo import PPO
from astra_parts.algorithms.surrogates import (
    ClipOptions,
    SurrogateOptions,
    surrogate_of,
    surrogate_with_cap,
    surrogate_with_clips,
    surrogate_with_gate,
)
from astra_parts.testing import tiny_graph, tiny_node

MASK = torch.tensor([[True, True], [True, False]])
OLD = torch.tensor([[-1.0, -2.0], [-3.0, 0.0]])
# Ratios 4 and 1 of a bad probe, 6 of a good one, and one of a masked token.
NOW = OLD + torch.tensor([[4.0, 1.0], [6.0, 1e6]]).log()
BATCH = PolicyBatch(
    pad_rows([(4,)] * 2, [(2, 2)] * 2, pad_id=0),
    OLD,
    OLD,
    MASK,
    torch.tensor([[-2.0], [1.0]]),
    3.0,
    0,
)


def losses(surrogate):
    values, figures = surrogate(NOW, BATCH)
    return values.expand_as(MASK)[MASK].tolist(), figures


def test_tokens_that_the_dual_clip_bounds_are_counted():
    plain, figures = losses(surrogate_with_clips(ClipOptions(), level="token"))
    bounded, counted = losses(surrogate_with_clips(ClipOptions(), level="token", dual_clip=3.0))

    assert [8.0, 2.0, -1.2] == pytest.approx(plain)
    assert [6.0, 2.0, -1.2] == pytest.approx(bounded)
    assert {"clipped": 1 / 3} == pytest.approx(figures)
    assert {"clipped": 1 / 3, "dual_clipped": 1 / 3} == pytest.approx(counted)


def test_a_whole_probe_that_the_dual_clip_bounds_counts_with_each_of_its_tokens():
    # The geometric mean of 4 and 1 is 2.
    _, counted = losses(surrogate_with_clips(ClipOptions(), level="sequence_mean", dual_clip=1.9))

    assert {"clipped": 1 / 3, "dual_clipped": 2 / 3} == pytest.approx(counted)


def test_cispo_caps_the_weight_of_the_log_probability_and_counts_what_it_capped():
    found, figures = losses(surrogate_with_cap(5.0))

    # -min(r, 5) A log p.
    expected = [4.0 * 2.0 * NOW[0, 0], 1.0 * 2.0 * NOW[0, 1], -5.0 * NOW[1, 0]]
    assert [float(value) for value in expected] == pytest.approx(found)
    assert {"capped": 1 / 3} == pytest.approx(figures)


def test_sapo_closes_smoothly_at_the_temperature_of_the_tokens_sign():
    found, figures = losses(surrogate_with_gate(good=1.0, bad=2.0))

    def gate(temperature, ratio):
        return 4 / temperature / (1 + math.exp(-temperature * (ratio - 1)))

    assert [2 * gate(2, 4), 2 * gate(2, 1), -gate(1, 6)] == pytest.approx(found, rel=1e-5)
    assert {} == figures


@each_row(
    ("options", "expected"),
    [
        ({"dual_clip": 3.0}, surrogate_with_clips(ClipOptions(), level="token", dual_clip=3.0)),
        ({"clip_high": 0.5}, surrogate_with_clips(ClipOptions(clip_high=0.5), level="token")),
        ({"surrogate": "cispo"}, surrogate_with_cap(5.0)),
        ({"surrogate": "cispo", "max_ratio": 2.0}, surrogate_with_cap(2.0)),
        ({"surrogate": "sapo"}, surrogate_with_gate(good=1.0, bad=1.05)),
        ({"surrogate": "sapo", "temperature_bad": 3.0}, surrogate_with_gate(good=1.0, bad=3.0)),
        ({"surrogate": "sapo", "temperature_good": 3.0}, surrogate_with_gate(good=3.0, bad=1.05)),
    ],
)
def test_an_option_names_its_surrogate(options, expected):
    found = surrogate_of(SurrogateOptions.read(options, where="options"), level="token")

    assert losses(expected) == losses(found)


@each_row("kind", [GRPO, PPO])
@each_row(
    ("options", "name"),
    [
        ({"max_ratio": 2.0}, "max_ratio"),
        ({"temperature_good": 2.0}, "temperature_good"),
        ({"temperature_bad": 2.0}, "temperature_bad"),
        ({"surrogate": "cispo", "clip_low": 0.1}, "clip_low"),
        ({"surrogate": "cispo", "clip_high": 0.1}, "clip_high"),
        ({"surrogate": "cispo", "dual_clip": 3.0}, "dual_clip"),
        ({"surrogate": "cispo", "temperature_bad": 2.0}, "temperature_bad"),
        ({"surrogate": "sapo", "clip_low": 0.1}, "clip_low"),
        ({"surrogate": "sapo", "dual_clip": 3.0}, "dual_clip"),
        ({"surrogate": "sapo", "max_ratio": 2.0}, "max_ratio"),
    ],
)
def test_a_bound_that_the_surrogate_does_not_read_is_refused(kind, options, name):
    chosen = options.get("surrogate", "clip")
    message = f"{name} must be left out when surrogate is '{chosen}'"
    with pytest.raises(ConfigurationError, match=message) as caught:
        kind.Options.read(options, where="options")

    assert "\n" not in str(caught.value)


@each_row("surrogate", ["cispo", "sapo"])
def test_surrogates_of_tokens_refuse_the_ratio_of_a_probe(surrogate):
    with pytest.raises(ConfigurationError, match=f"ratio must be 'token' when.*'{surrogate}'"):
        GRPO.Options.read({"surrogate": surrogate, "ratio": "sequence"}, where="options")


def test_a_probe_of_one_token_has_the_same_update_at_both_levels(make_algorithm, gradient_of):
    """GSPO of one token is PPO's clip."""
    nodes = [tiny_node(reward, probe_ids=(token,)) for reward, token in ((1.0, 2), (0.0, 3))]

    def gradient(ratio):
        algorithm = make_algorithm("grpo", ratio=ratio)
        return gradient_of(algorithm, [algorithm.collate(algorithm.flatten(tiny_graph(*nodes)))])

    torch.testing.assert_close(gradient("token"), gradient("sequence"))


@pytest.mark.parametrize("surrogate", ["cispo", "sapo"])
def test_micro_batches_and_padding_change_no_gradient(
    surrogate, experience, make_algorithm, gradient_of, nudge
):
    algorithm = make_algorithm("grpo", surrogate=surrogate, entropy_coefficient=0.1)
    steps = algorithm.flatten_all(experience)
    nudge(algorithm.system)
    whole = gradient_of(algorithm, [algorithm.collate(steps)])
    backwards = steps[::-1]
    parts = [algorithm.collate(backwards[at : at + 2]) for at in range(0, len(steps), 2)]

    size = float(whole.abs().max())
    torch.testing.assert_close(whole, gradient_of(algorithm, parts), rtol=0.0, atol=1e-4 * size)


@pytest.mark.parametrize("surrogate", ["clip", "cispo", "sapo"])
def test_in_the_first_update_all_surrogates_have_one_gradient(
    surrogate, make_algorithm, gradient_of
):
    algorithm, plain = make_algorithm("grpo", surrogate=surrogate), make_algorithm("grpo")
    nodes = [tiny_node(1.0, probe_ids=(2, 3, 0)), tiny_node(0.0, probe_ids=(6, 0))]
    batch = plain.collate(plain.flatten(tiny_graph(*nodes)))
    with torch.no_grad():
        attacker = plain.system.attacker
        own = attacker.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
    width = batch.mask.shape[1]
    now = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in own])
    batch = replace(batch, behaviour_logprobs=now)

    expected, found = gradient_of(plain, [batch]), gradient_of(algorithm, [batch])
    torch.testing.assert_close(expected, found, rtol=0.0, atol=1e-4 * float(expected.abs().max()))

from dataclasses import replace

import pytest
from tiny_benchmark import TINY

from benchmarks.limits import Machine, Work, decoding_work, rollout_works, update_work
from benchmarks.shapes import language_model

pytestmark = pytest.mark.routes


@pytest.fixture(scope="module")
def model():
    return language_model(TINY).model


def test_a_machine_is_measured():
    machine = Machine.measured(num_bytes=1 << 20, size=64)

    assert machine.bytes_per_s > 0.0
    assert machine.flops_per_s > 0.0


def test_the_slower_of_reading_and_multiplying_is_the_limit():
    machine = Machine(bytes_per_s=10.0, flops_per_s=100.0)

    assert machine.seconds(Work(num_bytes=20.0, flops=100.0)) == 2.0
    assert machine.seconds(Work(num_bytes=20.0, flops=300.0)) == 3.0


def test_split_products_count_where_they_are_faster():
    slow, fast = (Machine(10.0, 100.0, split_flops_per_s=rate) for rate in (50.0, 300.0))

    assert slow.with_split_products().seconds(Work(1.0, 300.0)) == 3.0
    assert fast.seconds(Work(1.0, 300.0)) == 3.0
    assert fast.with_split_products().seconds(Work(1.0, 300.0)) == 1.0


def test_a_step_of_decoding_reads_every_weight_and_all_keys_and_values(model):
    work = decoding_work(model, TINY, batch_size=3, context_tokens=10)
    weights = sum(p.numel() for p in model.parameters()) - 1024 * 16  # positions are looked up
    cached = 3 * 10 * 2 * 2 * 16  # rows, tokens, keys and values, layers, width

    assert work.num_bytes == 4 * (weights + cached)
    assert work.flops == 2 * 3 * weights + 2 * cached


def test_an_update_counts_a_shared_prefix_once(model):
    one = update_work(model, TINY, [(1, 2, 3)], 0)
    shared = update_work(model, TINY, [(1, 2, 3), (1, 2, 3)], 0)
    forked = update_work(model, TINY, [(1, 2, 3), (1, 2, 4)], 0)

    assert one.flops == shared.flops < forked.flops


def test_an_update_pays_the_head_for_scored_tokens_only(model):
    head = model.lm_head.weight.numel()
    free, scored = (update_work(model, TINY, [(1, 2, 3)], count) for count in (0, 2))

    assert scored.flops - free.flops == 3 * 2 * 2 * head


def test_a_rollout_reads_nothing_twice(model):
    positions = model.transformer.wpe.weight.numel()
    head = model.lm_head.weight.numel()
    weights = sum(p.numel() for p in model.parameters()) - positions - head
    shape = replace(TINY, prompt_tokens=5, new_tokens=4, tree_width=2, tree_depth=2)
    *steps, reading = rollout_works(model, shape, 3)

    # Probes and replies of 6 rows, then of 12: three prompts, and six turns of 8 tokens to share.
    contexts = [(6, 15, 2), (6, 15, 6), (12, 63, 2), (12, 63, 6)]
    for (rows, shared, own), step in zip(contexts, steps, strict=True):
        alone = decoding_work(model, shape, batch_size=rows, context_tokens=shared / rows + own)
        assert (4 * alone.num_bytes, 4 * alone.flops) == (step.num_bytes, step.flops)
    # Prompts by both, probes of both levels by the target, replies of the first by the attacker.
    num_read = 2 * 3 * 5 + (6 + 12) * 4 + 6 * 4
    assert reading.flops == 2 * weights * num_read + 2 * head * (6 + 12) * 4

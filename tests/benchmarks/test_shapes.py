import pytest
from each_row import each_row
from tiny_benchmark import TINY

from benchmarks.shapes import (
    GPT2_SMALL,
    SMALL,
    DigestScorer,
    language_model,
    prompts,
    rewarded_graphs,
    sampler,
    system,
)


@pytest.fixture(scope="module")
def own():
    return system(TINY)


def test_gpt2_small_has_its_size():
    assert (12, 768, 12, 50257) == (
        GPT2_SMALL.num_layers,
        GPT2_SMALL.hidden_size,
        GPT2_SMALL.num_heads,
        GPT2_SMALL.vocabulary_size,
    )


def test_prompts_have_as_many_tokens_as_the_shape_says(own):
    seeds = prompts(TINY, 5)
    lengths = {len(own.attacker.closed_ids(own.attacker.encode(prompt.text))) for prompt in seeds}

    assert {TINY.prompt_tokens} == lengths
    assert len({prompt.text for prompt in seeds}) == 5


def test_every_utterance_is_as_long_as_the_shape_says(own):
    (graph,) = sampler(TINY, own).roll_out(prompts(TINY, 1), iteration=0)
    nodes = list(graph.nodes())

    assert len(nodes) == 2 + 4
    assert {TINY.new_tokens} == {len(node.probe_ids) for node in nodes}
    assert {TINY.new_tokens} == {len(reply) for node in nodes for reply in node.response_ids}


def test_siblings_differ_in_reward(own):
    for graph in rewarded_graphs(TINY, own, 2):
        for group in graph.groups():
            assert len({node.reward for node in group}) == TINY.tree_width


def test_target_and_reference_are_one_model_that_the_attacker_is_not(own):
    assert own.reference_is_target
    assert own.attacker.model is not own.target.language_model.model


def test_the_judge_knows_the_text_alone():
    scorer = DigestScorer(DigestScorer.Options())

    assert scorer.score(["a", "b", "a"]) == [*scorer.score(["a", "b"]), *scorer.score(["a"])]
    assert all(0.0 <= score < 1.0 for score in scorer.score(["a", "b", ""]))


@each_row("shape", [TINY, SMALL])
def test_the_weights_are_as_large_as_the_models(shape):
    model = language_model(shape).model

    assert shape.weights_mib == sum(own.nbytes for own in model.parameters()) / (1 << 20)

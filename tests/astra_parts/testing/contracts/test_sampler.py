from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import check_sampler

SMALL = {"tree_width": 2, "tree_depth": 2, "num_responses": 1}


@pytest.mark.real
@each_row("name", BUILT_INS["sampler"])
def test_every_built_in_sampler_keeps_the_contract(name):
    check_sampler(name, **SMALL)


class _Shuffled(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        return super().roll_out(prompts, iteration=iteration)[::-1]


class _Stuck(TreeSampler):
    def grow(self, prompts, widths, **parts):
        graphs = super().grow(prompts, widths, **{**parts, "iteration": 0})
        return [type(graph)(graph.prompt, parts["iteration"], graph.children) for graph in graphs]


class _Unnumbered(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        first = [replace(prompt, run_id=0) for prompt in prompts]
        graphs = super().roll_out(first, iteration=iteration)
        return [replace(g, prompt=prompt) for g, prompt in zip(graphs, prompts, strict=True)]


class _Terse(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        def terse(node):
            probe = replace(node.probe, reference_logprobs=())
            return replace(node, probe=probe, children=tuple(map(terse, node.children)))

        return [
            replace(graph, children=tuple(map(terse, graph.children)))
            for graph in super().roll_out(prompts, iteration=iteration)
        ]


class _OneVoice(TreeSampler):
    def grow(self, prompts, widths, **parts):
        self.system = self.system.seen_by(self.system.player(0))
        return super().grow(prompts, widths, **parts)


@pytest.mark.real
@each_row(
    ("sampler", "promise"),
    [
        (_Shuffled, "in order"),
        (_Stuck, "iterations differ"),
        (_Unnumbered, "runs of a prompt differ"),
        (_Terse, "reference it declares"),
        (_OneVoice, "played by the agent of its role"),
    ],
)
def test_a_sampler_that_breaks_a_promise_is_reported_with_it(sampler, promise):
    with pytest.raises(AssertionError, match=promise):
        check_sampler(sampler, **SMALL)

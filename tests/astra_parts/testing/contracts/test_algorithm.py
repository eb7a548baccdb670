from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.registry import BUILT_INS
from astra_parts.algorithms.distillation import Distillation
from astra_parts.testing import check_algorithm


@pytest.mark.real
@each_row("name", BUILT_INS["algorithm"])
def test_every_built_in_algorithm_keeps_the_contract(name):
    check_algorithm(name)


class _MeanLoss(DPO):
    def step(self, batch):
        loss, metrics = super().step(batch)
        return loss / batch.weight, metrics


class _Detached(DPO):
    def step(self, batch):
        loss, metrics = super().step(batch)
        return loss * 0.0, metrics


class _LearnsFromFailures(DPO):
    def flatten(self, graph):
        return [*super().flatten(graph), *(node for node in graph.nodes() if node.has_failed)]


class _LearnsFromOthers(DPO):
    def flatten(self, graph):
        def heard(node):
            probe = replace(node.probe, mask=(True,) * len(node.probe_ids))
            return replace(node, probe=probe, children=tuple(map(heard, node.children)))

        return super().flatten(replace(graph, children=tuple(map(heard, graph.children))))


class _DeafPupil(Distillation):
    def _opinions(self, nodes):
        return [node.probe_logprobs for node in nodes]


@each_row(
    ("algorithm", "promise"),
    [
        (_DeafPupil, "gradient reaches the attacker"),
        (_MeanLoss, "the loss is a sum"),
        (_Detached, "gradient reaches the attacker"),
        (_LearnsFromFailures, "turns that failed teach nothing"),
        (_LearnsFromOthers, "turns without a trained token teach nothing"),
    ],
)
def test_an_algorithm_that_breaks_a_promise_is_reported_with_it(algorithm, promise):
    with pytest.raises(AssertionError, match=promise):
        check_algorithm(algorithm)

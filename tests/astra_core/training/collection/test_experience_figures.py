from each_row import each_row

from astra_core.training.collection.experience_figures import experience_figures
from astra_parts.testing import tiny_graph, tiny_node


def test_means_are_over_the_turns_that_were_judged():
    graph = tiny_graph(tiny_node(1.0), tiny_node(0.0), tiny_node(9.0, failure="no answer"))

    figures = experience_figures([graph], 5)

    assert 0.5 == figures["rollout/reward"]
    assert (3.0, 1.0, 5.0) == tuple(
        figures[f"rollout/{name}"] for name in ("num_nodes", "num_failed", "num_steps")
    )


@each_row("graphs", [[], [tiny_graph(tiny_node(1.0, failure="no answer"))]])
def test_nothing_judged_counts_as_zero(graphs):
    assert 0.0 == experience_figures(graphs, 0)["rollout/reward"]

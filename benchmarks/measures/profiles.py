"""Where the time of a rollout and of a training step goes, by torch's profiler.

``python -m benchmarks profiles`` prints the share of each kind of work on one thread, largest
first. The rest beside torch's operators belongs to Python, the scorer and the sampler.
"""

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Report
from benchmarks.measures.update import learner
from benchmarks.shapes import Shape, prompts, rewarded_graphs, sampler, system
from benchmarks.timing import Effort, seconds, threads
from tasks.machine.tables import markdown

# An operator is of the first kind with a word in its name.
KINDS: dict[str, tuple[str, ...]] = {
    "attention": ("scaled_dot_product", "flash", "bmm"),
    "optimiser": ("adam", "_foreach", "sgd"),
    "linear layers": ("mm", "linear", "matmul", "mkldnn"),
    "sampling": (
        *("topk", "sort", "cumsum", "multinomial", "exponential", "searchsorted", "isin", "arg"),
        *("gather", "scatter", "logsumexp", "uniform"),
    ),
    "softmax": ("softmax",),
    "copies": (
        *(
            "copy",
            "cat",
            "index",
            "clone",
            "contiguous",
            "stack",
            "select",
            "repeat",
            "fill",
            "zero",
        ),
        *("embedding", "empty", "pad"),
    ),
    "elementwise and norms": (
        *("add", "mul", "div", "sub", "pow", "tanh", "norm", "gelu", "exp", "where", "sum", "mean"),
        *(
            "neg",
            "log",
            "lt",
            "le",
            "ge",
            "gt",
            "eq",
            "bitwise",
            "to",
            "abs",
            "rsqrt",
            "sqrt",
            "clamp",
        ),
    ),
}
MOST_TREES = 2
"""Shares hardly depend on their number, and every call is made twice."""

PYTHON = "python and dispatch"
OTHER = "other operators"


def report(shape: Shape, effort: Effort) -> Report:
    """The shares of a rollout of a few trees and of a training step on them."""
    own, num_trees = system(shape), min(effort.trees, MOST_TREES)
    grown, seeds = sampler(shape, own), prompts(shape, num_trees)
    with threads(1):
        learned = learner(shape, own, rewarded_graphs(shape, own, num_trees))
        learned.step(1)  # creates the optimiser's state
        tables = [
            _table("rollout", shape, lambda: grown.roll_out(seeds, iteration=1)),
            _table("training step", shape, lambda: learned.step(num_trees)),
        ]
    return Report(tables=tables)


def _table(what: str, shape: Shape, call: Callable[[], Any]) -> str:
    operators = profiled(call)
    kinds: dict[str, dict[str, float]] = {}
    for name, share in operators.items():
        kinds.setdefault(PYTHON if name == PYTHON else kind_of(name), {})[name] = share
    ranked = sorted(kinds.items(), key=lambda item: -sum(item[1].values()))
    rows = [
        (kind, f"{sum(own.values()):.1%}", ", ".join(list(own)[:3]) if kind != PYTHON else "")
        for kind, own in ranked
    ]
    header = (f"{what} of {shape.name}", "share of time, 1 thread", "its largest operators")
    return markdown(header, rows)


def profiled(call: Callable[[], Any]) -> dict[str, float]:
    """The share of each operator in the time of a call, largest first; they sum to one."""
    bare = seconds(call)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    spent = {event.key: event.self_cpu_time_total / 1e6 for event in seen.key_averages()}
    # The profiler slows down Python, not the operators, so the rest is measured without it.
    spent[PYTHON] = max(bare - sum(spent.values()), 0.0)
    total = sum(spent.values())
    ranked = sorted(spent.items(), key=lambda item: -item[1])
    return {name: value / total for name, value in ranked if value}


def kind_of(operator: str) -> str:
    """The kind of work of an operator such as ``aten::addmm``."""
    name = operator.rpartition("::")[2].lower()
    return next(
        (kind for kind, words in KINDS.items() if any(word in name for word in words)), OTHER
    )

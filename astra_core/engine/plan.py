"""How a model is run on a machine: every route, decided once and printable in one line.

The parts of the engine make no trials of their own: they get what they need of the plan as
arguments, and a test can pass another. What depends on the actual size, such as whether a product
has enough rows for a route, is decided where the size is known.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Literal, Self

import torch
from packaging.requirements import Requirement

from astra_core.engine.abilities import Abilities, abilities_of, takes_steps
from astra_core.engine.compilation import compile_layers
from astra_core.engine.machine import Machine
from astra_core.engine.products.packed_linear import packed_linears
from astra_core.engine.products.precision import Precision
from astra_core.engine.products.routed_linear import routed_linears
from astra_core.engine.products.routes import Route
from astra_core.models.pretrained import threads_for

Reading = Literal["cached", "padded", "lone"]
_READS = {
    "cached": "reads packed trees",
    "padded": "reads padded rows",
    "lone": "reads single rows",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The routes of one model on one machine.

    Attributes:
        model: Its family and size.
        machine: Where it runs.
        abilities: What the model supports, found by trial.
        num_threads: Threads of torch.
        talks_in: Precision of the products when it samples or scores without gradient.
        learns_in: Precision of an update.
        recomputes: Activations are computed again in the backward pass instead of kept.
        steps: It decodes in steps of fixed shape.
        compiles_steps: The model's pass in such a step is compiled.
        compiles_passes: Those of an update are.
    """

    model: str
    machine: Machine
    abilities: Abilities
    num_threads: int
    talks_in: Precision = "fp32"
    learns_in: Precision = "fp32"
    recomputes: bool = False
    steps: bool = False
    compiles_steps: bool = False
    compiles_passes: bool = False

    @classmethod
    def of(cls, model: Any, machine: Machine | None = None) -> Self:
        """The plan of a causal LM of transformers; its abilities are tried once.

        Args:
            model: In its place: the plan is that of the device it is on.
            machine: By default this one, with default settings.
        """
        size = sum(weight.numel() for weight in model.parameters())
        machine = machine or Machine.here(model.device.type)
        return cls(
            model=f"{model.config.model_type} {_size_in_words(size)}",
            machine=machine,
            abilities=abilities_of(model),
            num_threads=threads_for(size, machine.num_threads),
            steps=machine.fixes_shapes and takes_steps(model),
        )

    def talking(self, *, precision: Precision) -> Self:
        """The same with another precision for talking."""
        return replace(self, talks_in=precision)

    def learning(self, *, precision: Precision, recomputes: bool, compiles: bool = False) -> Self:
        """The same with other settings of an update."""
        return replace(self, learns_in=precision, recomputes=recomputes, compiles_passes=compiles)

    @property
    def reading(self) -> Reading:
        """How rows that will be continued are read."""
        if self.abilities.takes_masks:
            return "cached"
        return "padded" if self.abilities.takes_padding else "lone"

    @property
    def packs_trees(self) -> bool:
        """Rows that share beginnings are read as one packed tree."""
        return self.abilities.takes_masks

    @property
    def aligns_rows(self) -> bool:
        """Rows in an update begin in the first column and need no mask."""
        return self.machine.fixes_shapes and self.reading != "lone"

    @property
    def route(self) -> Route:
        """That fp32 products take in training; the fast one's switch would break up a program."""
        is_closed = self.compiles_passes and self.machine.route == "fast"
        return "plain" if is_closed else self.machine.route

    @property
    def talks_in_copy(self) -> bool:
        """A copy in half precision talks; elsewhere only products are in bf16."""
        return self.talks_in == "bf16" and self.machine.fixes_shapes

    @property
    def captures(self) -> bool:
        """Steps are recorded and replayed."""
        return self.machine.device == "cuda"

    def talks(self, model: Any) -> AbstractContextManager[None]:
        """A scope in which the model talks; its weights must not change inside."""
        if self.talks_in_copy:
            return nullcontext()
        dtype = torch.bfloat16 if self.talks_in == "bf16" else torch.float32
        return packed_linears(model, packs=self.machine.packs, dtype=dtype)

    @contextmanager
    def learns(self, model: Any) -> Iterator[None]:
        """A scope around the passes of one update, forward and backward."""
        with ExitStack() as scopes:
            if self.recomputes:
                scopes.enter_context(recompute(model))
            if self.compiles_passes:
                scopes.enter_context(compile_layers(model))
            if self.learns_in == "fp32":
                scopes.enter_context(routed_linears(model, route=self.route))
            yield

    def autocast(self) -> AbstractContextManager[Any]:
        """A scope around the forward pass of an update."""
        if self.learns_in == "fp32":
            return nullcontext()
        return torch.autocast(self.machine.device, dtype=torch.bfloat16)

    def describe(self) -> str:
        """One readable line; nothing in it changes during a run or from one try to the next."""
        memory = "kept" if self.machine.keeps_freed_memory else "given back"
        how = ", compiled" if self.compiles_steps else ""
        return "; ".join(
            [
                f"{self.model} on {self.machine.place}: {_READS[self.reading]}",
                self._cache(),
                replace(self.machine, route=self.route).products,
                f"talks in {self.talks_in}, learns in {self.learns_in}",
                *([f"decodes in steps of fixed shape{how}"] if self.steps else []),
                *(["passes of an update compiled"] if self.compiles_passes else []),
                *(["activations recomputed"] if self.recomputes else []),
                f"freed memory {memory}",
                f"{self.num_threads} thread{'s' * (self.num_threads != 1)}",
                *_missed_pins(),
            ]
        )

    __str__ = describe

    def _cache(self) -> str:
        if self.reading == "lone":
            return "nothing cached"
        is_shared = self.abilities.takes_stems
        return "keys and values cached" + (", those of stems once" if is_shared else "")


@cache
def _missed_pins() -> tuple[str, ...]:
    """Libraries in a version that the routes were not tried with, which may cost some of them."""
    try:
        wanted = map(Requirement, requires("astra-red-team") or ())
    except PackageNotFoundError:
        return ()
    return tuple(
        f"{one.name} {version(one.name)} instead of {one.specifier}"
        for one in wanted
        if one.name in {"torch", "transformers"} and not one.specifier.contains(version(one.name))
    )


def _size_in_words(num_parameters: int) -> str:
    """The number to three digits at most: 124439808 is 124M."""
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if num_parameters >= unit:
            count = num_parameters / unit
            return f"{count:.1f}{name}" if count < 10 else f"{count:.0f}{name}"
    return str(num_parameters)


@contextmanager
def recompute(model: Any) -> Iterator[None]:
    """Runs the body with recomputation of the layers' activations in the backward pass.

    transformers recomputes in training mode only, which would switch dropout on; so the layers
    alone are put into that mode and nothing below them.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not model.is_activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False

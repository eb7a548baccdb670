"""The properties of a machine that decide how models are run on it, found by trial."""

from dataclasses import dataclass
from typing import Self

import torch

from astra_core.engine.processor import processor_class
from astra_core.engine.products.packed_linear import has_packed_product
from astra_core.engine.products.routes import Route, open_route

_PRODUCTS = {
    "plain": "products fp32",
    "fast": "products fp32 by oneDNN's fast route",
    "split": "products fp32 split into bf16",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, its routes, and the settings of the process.

    Attributes:
        device: Its type, as torch calls it.
        processor: The class of the CPU, in words.
        route: The route of fp32 products in training.
        packs: Number types whose products with packed weights are correct.
        keeps_freed_memory: The process reuses what it frees.
        num_threads: Threads asked for; 0 chooses by the size of the model.
        fixes_shapes: Decoding takes steps of a fixed shape, which a GPU replays.
    """

    device: str
    processor: str
    route: Route
    packs: frozenset[torch.dtype]
    keeps_freed_memory: bool = False
    num_threads: int = 0
    fixes_shapes: bool = False

    @classmethod
    def here(
        cls, device: str = "cpu", *, keeps_freed_memory: bool = False, num_threads: int = 0
    ) -> Self:
        """This machine, for models on a device of this type; the same trials run once."""
        is_cpu = device == "cpu"
        types = (torch.float32, torch.bfloat16) if is_cpu else ()
        return cls(
            device,
            processor_class(),
            open_route(device),
            frozenset(dtype for dtype in types if has_packed_product(dtype)),
            keeps_freed_memory=keeps_freed_memory,
            num_threads=num_threads,
            fixes_shapes=not is_cpu,
        )

    @property
    def place(self) -> str:
        """Device and processor: ``cpu (AVX512, bf16 units, no AMX)``."""
        return f"cpu ({self.processor})" if self.device == "cpu" else self.device

    @property
    def products(self) -> str:
        """How fp32 matrices are multiplied, in words."""
        is_packed = torch.float32 in self.packs
        return _PRODUCTS[self.route] + (", weights packed to talk" if is_packed else "")

    def describe(self) -> str:
        """One readable line."""
        return f"{self.place}: {self.products}"

"""A GPU as the subject of a benchmark: its limits, models of sizes that matter there, timing."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from astra_core.engine.machine import Machine
from astra_core.models.language_model import LanguageModel

PROMPT_TOKENS, NEW_TOKENS, SHORT = 64, 128, 8
"""Of a row, and of the short run that is subtracted to find the time of a step."""


@dataclass(frozen=True, slots=True)
class Size:
    """A model of Qwen2's architecture, whose head is the embedding, and what it is tried with.

    Attributes:
        name: For people.
        layers: Of the model; what follows are its widths.
        rows: Of the batches in decoding.
        prompts: Of the trees.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    groups: int
    inner: int
    vocabulary: int = 151936
    rows: tuple[int, ...] = (64, 256)
    prompts: int = 16

    def model(self, device: torch.device, *, dtype: torch.dtype, seed: int = 0) -> Any:
        """With random weights."""
        torch.manual_seed(seed)
        config = transformers.Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.groups,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=0,
        )
        with device:
            model = transformers.Qwen2ForCausalLM(config)
        return model.to(dtype).eval()

    def language_model(self, device: torch.device, *, seed: int = 0, **of: bool) -> LanguageModel:
        """The same in fp32 with a tokenizer that knows ``w0``, ``w1`` and so on.

        Args:
            device: Where it is.
            seed: Of its weights.
            **of: ``is_trained``, for weights that take a gradient.
        """
        words = {"</s>": 0, **{f"w{index}": index + 1 for index in range(self.vocabulary - 1)}}
        tokenizer = Tokenizer(models.WordLevel(vocab=words, unk_token="</s>"))  # noqa: S106
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")  # noqa: S106
        model = self.model(device, dtype=torch.float32, seed=seed)
        model.requires_grad_(of.get("is_trained", False))
        machine = replace(Machine.here(device.type), fixes_shapes=True)
        return LanguageModel(model, wrapped, machine=machine)

    def contexts(self, count: int) -> list[tuple[int, ...]]:
        """Different rows of ``PROMPT_TOKENS`` ids."""
        last = self.vocabulary - 1
        return [
            tuple(1 + (7919 * row + 31 * place) % last for place in range(PROMPT_TOKENS))
            for row in range(count)
        ]

    def bytes_per_row(self) -> int:
        """Keys and values of a row in bf16, half of the new tokens on average."""
        width = self.groups * self.hidden // self.heads
        return 4 * self.layers * width * (PROMPT_TOKENS + NEW_TOKENS // 2)

    def update_flops(self, num_parameters: int, rows: int) -> float:
        """Of one forward and backward pass in which the new tokens of each row are scored."""
        head = self.vocabulary * self.hidden
        width = PROMPT_TOKENS + NEW_TOKENS
        attention = 12 * self.layers * self.hidden * width / 2
        body = 6 * (num_parameters - head) + attention
        return body * rows * width + 6 * head * rows * NEW_TOKENS


SIZES = (Size("0.5 B", 24, 896, 14, 2, 4864), Size("1.5 B", 28, 1536, 12, 2, 8960))
TINY = Size("tiny", 1, 16, 2, 1, 32, vocabulary=300, rows=(2, 4), prompts=1)


@dataclass(slots=True)
class Card:
    """What is measured on, and until when.

    Attributes:
        device: A CUDA device, or another for a try.
        bytes_per_s: Rate of a copy, reading and writing counted.
        flops_per_s: Rate of a large product in bf16.
        deadline: No line begins after it, on ``time.perf_counter``.
        lines: The table so far.
        compiles: Which lines there are: without compiling, with it.
    """

    device: torch.device
    bytes_per_s: float
    flops_per_s: float
    deadline: float
    lines: list[dict[str, Any]] = field(default_factory=list)
    compiles: tuple[bool, ...] = (False, True)

    @classmethod
    def measured(cls, device: torch.device, *, seconds: float, is_tiny: bool) -> "Card":
        """The card with its limits."""
        deadline = time.perf_counter() + seconds
        count, size = (1 << 20, 256) if is_tiny else (1 << 31, 8192)
        source = torch.ones(count, dtype=torch.uint8, device=device)
        sink = torch.empty_like(source)
        copied = min(timed(device, partial(sink.copy_, source)) for _ in range(5))
        left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
        product = min(timed(device, partial(torch.matmul, left, right)) for _ in range(5))
        return cls(device, 2 * count / copied, 2 * size**3 / product, deadline)

    @property
    def name(self) -> str:
        """As its maker calls it."""
        is_cuda = self.device.type == "cuda"
        return torch.cuda.get_device_name(self.device) if is_cuda else str(self.device)

    @property
    def is_over(self) -> bool:
        """True if no time is left."""
        return time.perf_counter() > self.deadline

    def time(self, call: Callable[[], Any], repetitions: int = 1) -> float:
        """The least seconds of a call."""
        return min(timed(self.device, call) for _ in range(repetitions))

    def free(self) -> None:
        """Forgets memory that nothing uses, and its peak."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_gib(self) -> float:
        """Since ``free``."""
        is_cuda = self.device.type == "cuda"
        return torch.cuda.max_memory_allocated(self.device) / 2**30 if is_cuda else 0.0

    def add(self, table: str, **figures: Any) -> None:
        """A line; told at once, since a later one may fail."""
        self.lines.append({"table": table, **figures})
        print(self.lines[-1], flush=True)

    def rows_of(self, table: str) -> list[dict[str, Any]]:
        """The lines of a table."""
        return [
            {key: value for key, value in line.items() if key != "table"}
            for line in self.lines
            if line["table"] == table
        ]


def timed(device: torch.device, call: Callable[[], Any]) -> float:
    """Seconds until a call's work is done."""
    _wait(device)
    begun = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def largest_gap(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> float:
    """The largest difference of numbers in the same places."""
    pairs = zip(first, second, strict=True)
    return max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))

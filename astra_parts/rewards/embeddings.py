"""The meaning of probes as vectors: mean hidden states of the reference or of another model."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.models.control_tokens import control_ids, space_out
from astra_core.models.folders import require_folder
from astra_core.models.rows import pad_rows
from astra_core.rollout import Prompt
from astra_core.system import System

_BATCH = 64
_MAX_TOKENS = 256
# Prompts whose mean is taken as the origin.
_MAX_CENTRE = 512


class EmbedderOptions(Section):
    """Whose hidden states are taken."""

    folder: str | None = None


class Embedder:
    """Unit vectors of texts: the last hidden states, averaged over tokens, less their mean.

    The mean over the run's prompts is subtracted first: hidden states of language models all point
    the same way, and their cosines differ little before (Mu and Viswanath, arXiv:1702.01417). A
    folder may hold any encoder or causal model of transformers, with safetensors and tokenizer.
    """

    def __init__(self, options: EmbedderOptions) -> None:
        self._options = options
        self._model: Any = None
        self._tokenizer: Any = None
        self._centre = torch.zeros(())
        self._last: tuple[tuple[str, ...], Tensor] = ((), torch.zeros(0, 0))
        if options.folder is not None:
            require_folder(options.folder)

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Takes the reference, or loads the folder, and finds the centre of the prompts."""
        reference = system.player(0).reference
        if self._options.folder is None:
            self._model, self._tokenizer = reference.model, reference.tokenizer
        elif self._model is None:
            self._model, self._tokenizer = _load(self._options.folder, reference.device)
        self._control_ids = control_ids(self._tokenizer)
        self._last = ((), torch.zeros(0, 0))
        texts = [prompt.text for prompt in prompts[:_MAX_CENTRE]]
        if texts:
            self._centre = self._states(texts).mean(dim=0)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """One unit vector per text, float32 on the CPU; zeros for a text without a token."""
        if self._model is None:
            msg = (
                "a term of embeddings must know the system, got none; give the reward to a "
                "sampler, or call its prepare() first"
            )
            raise ConfigurationError(msg)
        asked = tuple(texts)
        if self._last[0] != asked or not asked:
            # An experience is rewarded and then remembered, so the same texts are needed twice.
            self._last = (asked, self._unit_vectors(asked))
        return self._last[1]

    def __deepcopy__(self, memo: dict[int, object]) -> "Embedder":
        """A copy with its own centre and the same model: copying a reward must not copy models."""
        return copy(self)

    def _unit_vectors(self, texts: Sequence[str]) -> Tensor:
        unique = list(dict.fromkeys(texts))
        states = self._states(unique)
        is_said = states.abs().sum(dim=1, keepdim=True) > 0
        vectors = torch.where(is_said, states - self._centre, 0.0)
        found = torch.nn.functional.normalize(vectors, dim=1)
        place = {text: at for at, text in enumerate(unique)}
        return found[[place[text] for text in texts]]

    @torch.no_grad()
    def _states(self, texts: Sequence[str]) -> Tensor:
        """Mean last hidden state of each text, float32 on the CPU; zeros without a token."""
        plain = [space_out(self._tokenizer, text, self._control_ids) for text in texts]
        ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in plain]
        rows = [own[:_MAX_TOKENS] for own in ids]
        found = [self._batch(rows[at : at + _BATCH]) for at in range(0, len(rows), _BATCH)]
        return torch.cat(found) if found else torch.zeros(0, 1)

    def _batch(self, rows: Sequence[Sequence[int]]) -> Tensor:
        device, body = next(self._model.parameters()).device, self._model.base_model
        read = pad_rows([()] * len(rows), [row or (0,) for row in rows], pad_id=0, device=device)
        is_said = torch.tensor([[len(row) > 0] for row in rows], device=device)
        # A row without a token must attend to something; its mean is set to 0 below.
        seen = torch.where(is_said, read.attention_mask, 1)
        states = body(input_ids=read.input_ids, attention_mask=seen).last_hidden_state
        weights = (read.attention_mask * is_said).cpu().float()[:, :, None]
        summed: Tensor = (states.float().cpu() * weights).sum(dim=1)
        return summed / weights.sum(dim=1).clamp(min=1.0)


def _load(folder: str, device: torch.device) -> tuple[Any, Any]:
    """Model and tokenizer of a folder; never asks the network."""
    from transformers import AutoModel, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        model = AutoModel.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, **local
        )
    except Exception as error:  # a damaged folder may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = (
            f"{folder} must hold a model and a tokenizer of transformers with safetensors, got "
            f"{reason}; see the folder of the reward's embeddings"
        )
        raise ConfigurationError(msg) from error
    return model.eval().requires_grad_(requires_grad=False).to(device), tokenizer

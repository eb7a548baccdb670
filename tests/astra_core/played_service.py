"""A training service played by torch, in memory or in a folder, that counts what it is asked."""

import copy
import io
import json
import tarfile
from collections import Counter

import torch
from safetensors.torch import save

from astra_core.config import GenerationConfiguration
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import TrainingError
from astra_core.files import record_digest
from astra_core.models.rows import pad_rows
from astra_parts.services.training_service import Drawn, Updated
from astra_parts.testing import tiny_language_model


class PlayedService:
    """Trains all weights of the tiny model; ``asked`` counts calls, and draws one by one."""

    def __init__(self, *, seed=1, fails=()):
        self.base = tiny_language_model(seed, is_trained=True)
        self.model, self.optimizer = None, None
        self.saved, self.published = {}, {None: copy.deepcopy(self.base.model.state_dict())}
        self.archives, self.samplers = {}, {}
        self.asked, self.fails = Counter(), list(fails)
        # Weights that nobody can sample from until they are published again.
        self.unloaded = set()

    def begin(self):
        self.asked["begin"] += 1
        self.base.model.load_state_dict(self.published[None])
        self.base.model.zero_grad()
        self.optimizer = torch.optim.AdamW(self.base.model.parameters(), lr=0.0)

    def go_on_from(self, path):
        self.asked["go_on_from"] += 1
        weights, state = copy.deepcopy(self.saved[path])
        self.base.model.load_state_dict(weights)
        self.base.model.zero_grad()
        self.optimizer = torch.optim.AdamW(self.base.model.parameters(), lr=0.0)
        self.optimizer.load_state_dict(state)

    def update(self, batches, loss, adam):
        self.asked["update"] += 1
        logprobs = []
        for batch in batches:
            for record in batch:
                now = self._logprobs(record.inputs, record.targets)
                self._loss(loss, record, now).backward()
                logprobs.append(tuple(now.tolist()))
        if not logprobs:
            return Updated((), {})
        for group in self.optimizer.param_groups:
            betas = (adam.beta1, adam.beta2)
            own = {"lr": adam.lr, "betas": betas, "eps": adam.eps, "weight_decay": 0.0}
            group.update(own)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Updated(tuple(logprobs), {"grad_norm": 1.0})

    def _logprobs(self, inputs, targets):
        rows = pad_rows([inputs[:1]], [targets], pad_id=0)
        return token_logprobs(self.base.model, rows, plan=self.base.plan)[0]

    def _loss(self, loss, record, now):
        """As the protocol's pages write it, summed over the tokens."""
        before, gain = torch.tensor(record.logprobs), torch.tensor(record.advantages)
        ratio = torch.exp(now - before)
        if loss.name == "cross_entropy":
            return -(now * gain).sum()
        if loss.name == "importance_sampling":
            return -(ratio * gain).sum()
        low, high = loss.options["clip_low_threshold"], loss.options["clip_high_threshold"]
        held = torch.clip(ratio, low, high)
        if loss.name == "ppo":
            return -torch.minimum(ratio * gain, held * gain).sum()
        return -(held.detach() * now * gain).sum()

    def save(self, name):
        self.asked["save"] += 1
        state = (self.base.model.state_dict(), self.optimizer.state_dict())
        self.saved[name] = copy.deepcopy(state)
        return name

    def publish(self, name):
        self.asked["publish"] += 1
        self.published[name] = copy.deepcopy(self.base.model.state_dict())
        self.unloaded.discard(name)
        return name

    def draw(self, draws, path):
        if path in self.unloaded:
            return [TrainingError(f"{path} is not loaded")] * len(draws)
        keys = [[bytes.fromhex(record_digest([draw.seed]))[:16]] for draw in draws]
        how = GenerationConfiguration(max_new_tokens=draws[0].max_tokens, min_new_tokens=0)
        found = self._at(path).continuations([draw.context for draw in draws], keys, how)
        return [self._drawn(each.utterances[0]) for each in found]

    def _drawn(self, said):
        self.asked["draw"] += 1
        if self.asked["draw"] in self.fails:
            return TrainingError("the service is busy")
        return Drawn(said.token_ids, said.logprobs)

    def score(self, sequences, path):
        if path in self.unloaded:
            raise TrainingError(path)
        self.asked["score"] += len(sequences)
        sampler = self._at(path)
        return sampler.continuation_logprobs([x[:1] for x in sequences], [x[1:] for x in sequences])

    def _at(self, path):
        if path not in self.samplers:
            self.samplers[path] = tiny_language_model(1)
            self.samplers[path].model.load_state_dict(self.published[path])
        return self.samplers[path]

    def download(self, path, archive):
        self.asked["download"] += 1
        files = self.archives.get(path, {})
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return bool(files)


def adapters_of(model):
    """The files of an adapter that changes one matrix of the model, as PEFT writes them."""
    names = (name for name, value in model.model.named_parameters() if value.dim() == 2)
    name = next(each for each in names if "proj" in each)
    rows, columns = dict(model.model.named_parameters())[name].shape
    place = f"base_model.model.{name.removesuffix('.weight')}"
    pair = {
        f"{place}.lora_A.weight": torch.ones(1, columns),
        f"{place}.lora_B.weight": torch.ones(rows, 1),
    }
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1}
    return {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": save(pair),
    }

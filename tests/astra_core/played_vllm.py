"""A vLLM server played by the tiny model: adapters at run time, token ids in and out."""

import threading
from contextlib import contextmanager
from pathlib import Path

from hostile_server import HostileServer
from peft import set_peft_model_state_dict
from safetensors.torch import load_file

from astra_core.config import GenerationConfiguration, LoraConfiguration
from astra_core.models.lora import add_adapters
from astra_parts.testing import tiny_language_model

LORA = LoraConfiguration(rank=2)


class PlayedVllm(HostileServer):
    """The server; ``paths`` are those of all requests.

    Attributes:
        adapters: The folder of each that is loaded.
        loads: Names of adapters, as they were loaded.
        shift: What every log-probability is too large by.
        answered: Changes the record of an answer before it is given.
    """

    def __init__(self, *, seed=1):
        super().__init__(self.answer)
        self.adapters, self.loads, self.paths = {}, [], []
        self.shift, self.answered = 0.0, lambda record: record
        self.model = tiny_language_model(seed)
        add_adapters(self.model.model, LORA, seed=9)
        self.turn = threading.Lock()

    def start_again(self):
        """Forgets what it was given, as a new process has."""
        self.adapters.clear()

    def answer(self, handler, body, _):
        path = handler.path.rpartition("/")[2]
        self.paths.append(path)
        if path == "models":
            own = [{"id": name, "root": root} for name, root in self.adapters.items()]
            handler.give_json({"data": [{"id": "base", "root": "base"}, *own]})
            return
        if path == "load_lora_adapter":
            self.adapters[body["lora_name"]] = body["lora_path"]
            self.loads.append(body["lora_name"])
        elif path == "unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                handler.give_json({"error": {"message": "no such adapter"}}, 404)
                return
        elif body["model"] not in self.adapters:
            handler.give_json({"error": {"message": "no such model"}}, 404)
            return
        else:
            handler.give_json(self.answered(self._draw(body)))
            return
        handler.give(b"Success")

    def _draw(self, body):
        with self.turn:
            folder = Path(self.adapters[body["model"]])
            prefix = "base_model.model."
            state = load_file(folder / "adapter_model.safetensors")
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
            set_peft_model_state_dict(self.model.model, state)
            generation = GenerationConfiguration(
                max_new_tokens=body["max_tokens"], min_new_tokens=body["min_tokens"]
            )
            key = body["seed"].to_bytes(4, "big")
            [own] = self.model.continuations([body["prompt"]], [[key]], generation)
        said = own.utterances[0]
        choice = {
            "token_ids": list(said.token_ids),
            "logprobs": {"token_logprobs": [each + self.shift for each in said.logprobs]},
            "finish_reason": "stop" if said.has_ended else "length",
        }
        usage = {"prompt_tokens": len(body["prompt"])}
        return {"model": body["model"], "choices": [choice], "usage": usage}


@contextmanager
def played_vllm(**parts):
    server = PlayedVllm(**parts)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

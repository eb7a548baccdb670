"""A person's own model folder, with parts that do not fit: told by the stage that proves it."""

import json

from cases import (
    CHECK,
    Case,
    both,
    changed_json,
    cut,
    folder_at,
    params,
    pipe_at,
    without,
    without_key,
    write,
)

FOLDER = "my_model"
CONFIG, GENERATION = f"{FOLDER}/config.json", f"{FOLDER}/generation_config.json"
TOKENIZER, WEIGHTS = f"{FOLDER}/tokenizer.json", f"{FOLDER}/model.safetensors"
WORDS = f"{FOLDER}/tokenizer_config.json"
OWN = {"source": "folder", "path": FOLDER}
# Nothing built in takes part, so that the stage takes a moment.
CHOSEN = params(models={"attacker": OWN, "target": OWN})


def _case(name, arrange, *words):
    return Case(
        f"models: {name}", ("tasks", "models"), (f"/{FOLDER}", *words), both(CHOSEN, arrange)
    )


def _config(name, *words, **changes):
    return _case(name, changed_json(CONFIG, **changes), *words)


def _weights(change):
    """The tensors of the folder, changed by a function."""

    def arrange(folder):
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return arrange


def _spoil(value):
    def change(tensors):
        tensors["model.norm.weight"][3] = value

    return change


def _drop(tensors):
    del tensors["model.norm.weight"]


def _narrow(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()


def _pickle(folder):
    (folder / WEIGHTS).rename(folder / FOLDER / "pytorch_model.bin")


def _index(**names):
    def arrange(folder):
        (folder / WEIGHTS).unlink()
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(names))

    return arrange


def _token(number):
    """A token of the tokenizer is given another id."""

    def arrange(folder):
        record = json.loads((folder / TOKENIZER).read_text())
        added = record["added_tokens"][0]
        record["added_tokens"].append({**added, "id": number, "content": "<extra>"})
        (folder / TOKENIZER).write_text(json.dumps(record))

    return arrange


# What the check of params.yaml tells as well.
EARLY = ("model.safetensors must be a file", "only pytorch_model.bin, a pickle")
NUMBER = "must be a number from 1 to"
CASES = [
    Case("models: a pickle before a run", CHECK, EARLY, both(CHOSEN, _pickle)),
    *(
        _config(
            f"{key} = {value!r}", "config.json", f"{key} {NUMBER}", f"got {value!r}", **{key: value}
        )
        for key, value in (
            ("num_attention_heads", -4),
            ("num_attention_heads", 0),
            ("num_attention_heads", "2"),
            ("num_attention_heads", 2.0),
            ("num_attention_heads", True),
            ("num_key_value_heads", 0),
            ("num_key_value_heads", -1),
            ("hidden_size", "16"),
            ("hidden_size", 0),
            ("num_hidden_layers", "2"),
            ("num_hidden_layers", -2),
            ("num_hidden_layers", 10**9),
            ("vocab_size", "20"),
            ("vocab_size", 0),
            ("vocab_size", 10**12),
            ("head_dim", 0),
            ("max_position_embeddings", 0),
            ("max_position_embeddings", "long"),
        )
    ),
    _config(
        "7 heads",
        "config.json",
        "num_attention_heads = 7 must be a multiple of num_key_value_heads",
        num_attention_heads=7,
    ),
    _config(
        "3 groups",
        "config.json",
        "num_attention_heads = 2 must be a multiple",
        "got 3",
        num_key_value_heads=3,
    ),
    _config(
        "heads that do not part the width",
        "config.json",
        "hidden_size = 16 must be a multiple of num_attention_heads, got 7",
        num_attention_heads=7,
        num_key_value_heads=7,
        head_dim=None,
    ),
    _config(
        "a wider model than its weights",
        "the weights must have the sizes of config.json",
        "model.embed_tokens.weight",
        hidden_size=32,
    ),
    _config(
        "more words than its weights",
        "sizes of config.json",
        "model.embed_tokens.weight of (20, 16) where it says (5000, 16)",
        vocab_size=5000,
    ),
    _config(
        "fewer words than its weights",
        "sizes of config.json",
        "(10, 16)",
        vocab_size=10,
        eos_token_id=0,
        pad_token_id=1,
    ),
    _config("another width inside", "sizes of config.json", "mlp", intermediate_size=64),
    _config("another size of a head", "sizes of config.json", "self_attn", head_dim=4),
    _config(
        "more layers than its weights",
        "must hold every weight, got no model.layers.1",
        num_hidden_layers=2,
    ),
    _config(
        "text for a rate",
        "config.json",
        "'rms_norm_eps' expected float, got str",
        rms_norm_eps="small",
    ),
    _config(
        "text for a width inside",
        "config.json",
        "'intermediate_size' expected int, got str",
        intermediate_size="wide",
    ),
    _config(
        "a number for a truth",
        "config.json",
        "'tie_word_embeddings' expected bool",
        tie_word_embeddings=7,
    ),
    _config("no such type of weights", "float99", dtype="float99"),
    _config(
        "an architecture of nobody",
        "config.json",
        "model_type must be one that transformers knows, got 'nope'",
        model_type="nope",
    ),
    _config(
        "an unknown quantisation",
        "config.json",
        "quantization_config.quant_method must be one that transformers knows",
        "got 'nonsense'",
        quantization_config={"quant_method": "nonsense"},
    ),
    _config(
        "rotary positions of a letter",
        "config.json",
        "rope_theta must be a number above 0",
        "got 'a'",
        rope_theta="a",
    ),
    _config(
        "rotary positions of a letter in their own part",
        "config.json",
        "rope_parameters.factor must be a number above 0",
        "got 'a'",
        rope_parameters={"rope_type": "linear", "factor": "a", "rope_theta": 1e4},
    ),
    _config(
        "an unknown activation",
        "config.json must describe a model that can be built",
        "got KeyError: 'zzz'",
        hidden_act="zzz",
    ),
    _config(
        "unknown rotary positions",
        "config.json must describe a model that can be built",
        "got KeyError: 'zzz'",
        rope_parameters={"rope_type": "zzz", "factor": 2.0, "rope_theta": 1e4},
    ),
    _config("no language model", "config.json", "model_type must be a causal LM", model_type="vit"),
    _config(
        "another use of an architecture",
        "config.json",
        "architectures must name a causal LM, got 'LlamaForSequenceClassification'",
        architectures=["LlamaForSequenceClassification"],
    ),
    _config(
        "a number for an architecture",
        "config.json",
        "model_type must name an architecture, got 5",
        model_type=5,
    ),
    _config(
        "code of its own",
        "config.json",
        "auto_map must not be needed",
        model_type="mine",
        auto_map={"AutoConfig": "a.B", "AutoModelForCausalLM": "a.C"},
    ),
    *(
        _config(
            f"{key} = {value!r}",
            "config.json",
            f"{key} must be an id below vocab_size = 20",
            **{key: value},
        )
        for key, value in (
            ("eos_token_id", 20),
            ("eos_token_id", [0, 99]),
            ("eos_token_id", -5),
            ("eos_token_id", "end"),
            ("pad_token_id", 5000),
            ("bos_token_id", 20),
        )
    ),
    _case(
        "an end beyond the vocabulary",
        changed_json(GENERATION, eos_token_id=999),
        "generation_config.json",
        "eos_token_id must be an id below",
    ),
    _case(
        "a token beyond the vocabulary",
        _token(20),
        "every id of the tokenizer must be below vocab_size = 20",
        "got 20 for '<extra>'",
    ),
    _case(
        "no architecture", without_key(CONFIG, "model_type"), "config.json", "model_type must name"
    ),
    *(
        _case(f"{name} {how}", arrange, *words)
        for name, file, words in (
            ("config.json", CONFIG, ("config.json must be JSON",)),
            ("generation_config.json", GENERATION, ("generation_config.json must be JSON",)),
            ("tokenizer.json", TOKENIZER, ("must hold a tokenizer",)),
            ("tokenizer_config.json", WORDS, ("must hold a tokenizer",)),
            ("model.safetensors", WEIGHTS, ("model.safetensors must be whole safetensors",)),
        )
        for how, arrange in (
            ("emptied", write(file, "")),
            ("overwritten", write(file, b"\xff\xfe\x00")),
            ("cut short", cut(file)),
        )
    ),
    *(
        _case(f"{name} a list", write(file, "[]"), *words)
        for name, file, words in (
            ("config.json", CONFIG, ("config.json must be a JSON object, got list",)),
            ("generation_config.json", GENERATION, ("must be a JSON object, got list",)),
            ("tokenizer.json", TOKENIZER, ("must hold a tokenizer",)),
            ("tokenizer_config.json", WORDS, ("must hold a tokenizer",)),
        )
    ),
    _case("no tokenizer", without(TOKENIZER), "must hold a tokenizer (tokenizer.json"),
    _case(
        "no file of a tokenizer",
        both(without(TOKENIZER), without(WORDS), changed_json(CONFIG, model_type="qwen2")),
        "must hold a tokenizer's vocabulary, got no ",
        "tokenizer.json",
        "save_pretrained",
    ),
    _case(
        "a tokenizer in plain Python",
        changed_json(WORDS, tokenizer_class="ByT5Tokenizer"),
        "must hold a tokenizer (tokenizer.json",
        "backend_tokenizer",
    ),
    _case("no weights", without(WEIGHTS), "model.safetensors must be a file of safetensors"),
    _case(
        "a pickle alone",
        _pickle,
        "model.safetensors",
        "only pytorch_model.bin, a pickle",
        "save_pretrained",
    ),
    _case(
        "a folder of weights", folder_at(WEIGHTS), "model.safetensors must be a file", "a folder"
    ),
    _case("a pipe of weights", pipe_at(WEIGHTS), "model.safetensors must be a file", "a pipe"),
    _case("an index of nothing", _index(), "index.json", "weight_map must name a file"),
    _case("an index of numbers", _index(weight_map={"a": 5}), "weight_map must name a file"),
    _case(
        "a part is missing",
        _index(weight_map={"a": "part-1.safetensors"}),
        "part-1.safetensors must be a file",
    ),
    _case(
        "a weight is missing", _weights(_drop), "must hold every weight, got no model.norm.weight"
    ),
    _case("a weight is cut", _weights(_narrow), "model.norm.weight of (15,) where it says (16,)"),
    _case("a NaN", _weights(_spoil(float("nan"))), "must hold finite weights", "model.norm.weight"),
    _case(
        "an infinity",
        _weights(_spoil(float("inf"))),
        "must hold finite weights",
        "model.norm.weight",
    ),
]

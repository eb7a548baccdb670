"""Values of params.yaml that their own types allow, and that lead nowhere."""

import plugin_values
from cases import CHECK, Case, both, circle_at, folder_at, params, pipe_at, write

HASH = "0" * 40
NOT_A_HASH = "revision must be a commit hash of 40 hexadecimal digits"


def _model(role, **source):
    return params(models={role: source})


def _builtin(**settings):
    return params(models={"builtin": settings})


def _endpoint(**options):
    return params(system={"target": {"name": "endpoint", "options": {"model": "x", **options}}})


def _file(path, **more):
    return params(prompts={"source": "file", "path": path, **more})


MODELS = [
    Case(f"models.{role}: {name}", CHECK, (f"models.{role}", says), _model(role, **source))
    for role in ("attacker", "target", "reference")
    for name, source, says in (
        ("a folder without a path", {"source": "folder"}, "path must name a folder"),
        ("a folder that is not there", {"source": "folder", "path": "no"}, "with a config.json"),
        ("a file for a folder", {"source": "folder", "path": "params.yaml"}, "(a file)"),
        ("a path of 5,000 letters", {"source": "folder", "path": "x" * 5000}, "too long"),
        ("a path with NUL", {"source": "folder", "path": "a\0b"}, "NUL character"),
        ("a hub id without a revision", {"source": "hub", "repository": "a/b"}, NOT_A_HASH),
        (
            "a branch for a hash",
            {"source": "hub", "repository": "a/b", "revision": "main"},
            NOT_A_HASH,
        ),
        ("no id for a hash", {"source": "hub", "revision": HASH}, "repository and revision"),
        ("a folder of the built-in model", {"path": "my"}, "when source is 'folder'"),
        ("a hub id of a folder", {"source": "folder", "path": "my", "repository": "a/b"}, "'hub'"),
    )
]
BUILTIN = [
    Case(
        f"builtin model: {key} = {value}",
        CHECK,
        (f"models.builtin.{subject}", rule),
        _builtin(**{key: value}),
    )
    for key, value, subject, rule in (
        ("num_heads", 3, "hidden_size", "a multiple of twice num_heads = 3, got 128"),
        ("num_heads", 128, "hidden_size", "a multiple of twice num_heads = 128, got 128"),
        ("hidden_size", 12, "hidden_size", "a multiple of twice num_heads = 4, got 12"),
        ("hidden_size", 10**9, "hidden_size", "at most 4096"),
        ("hidden_size", 0, "hidden_size", "greater than or equal to 1"),
        ("num_layers", 100_000, "num_layers", "at most 64"),
        ("vocab_size", 257, "vocab_size", "greater than or equal to 258"),
        ("vocab_size", 10**9, "vocab_size", "at most 65536"),
        ("intermediate_size", 10**9, "intermediate_size", "at most 16384"),
        ("context_tokens", 24, "context_tokens", "above system.probe.max_new_tokens = 24"),
        ("context_tokens", 10**9, "context_tokens", "at most 65536"),
        ("num_dialogues", 10**12, "num_dialogues", "at most 10000000"),
        ("num_quarrels", -1, "num_quarrels", "greater than or equal to 0"),
        ("batch_size", 10**9, "batch_size", "at most 65536"),
    )
]
PROMPTS = [
    Case(f"prompts: {name}", CHECK, (f"prompts{subject}", says), params(prompts=section))
    for name, section, subject, says in (
        ("a file without a path", {"source": "file"}, "", "path must name a file"),
        ("no such file", {"source": "file", "path": "no.csv"}, ".path", "(nothing there)"),
        ("a folder for a file", {"source": "file", "path": "my_model"}, ".path", "(a folder)"),
        ("below a file", {"source": "file", "path": "dvc.yaml/x.csv"}, ".path", "(below a file)"),
        ("a name too long", {"source": "file", "path": "x" * 5000}, ".path", "too long"),
        ("a path too long", {"source": "file", "path": "x/" * 2500}, ".path", "too long"),
        ("a NUL", {"source": "file", "path": "a\0.csv"}, ".path", "NUL character"),
        ("an empty path", {"source": "file", "path": ""}, ".path", "must lie outside of"),
        (
            "no such dev file",
            {"source": "file", "path": "dvc.yaml", "dev_path": "no"},
            ".dev_path",
            "nothing there",
        ),
        ("a file of the builtin", {"path": "dvc.yaml"}, "", "'file' with path"),
        ("a dev file of the builtin", {"dev_path": "dvc.yaml"}, "", "'hub' with dev_path"),
        ("a hub without an id", {"source": "hub"}, "", "dataset and revision"),
        (
            "a branch for a hash",
            {"source": "hub", "dataset": "a/b", "revision": "main"},
            "",
            NOT_A_HASH,
        ),
        ("more than the grammar holds", {"num_builtin": 10**15}, ".num_builtin", "at most 1000000"),
    )
]
LINKS = [
    Case(
        "prompts: a pipe",
        CHECK,
        ("prompts.path", "(a pipe)"),
        both(pipe_at("p.csv"), _file("p.csv")),
    ),
    Case(
        "prompts: a circle of links",
        CHECK,
        ("prompts.path", "circle"),
        both(circle_at("p.csv"), _file("p.csv")),
    ),
    Case("prompts: a device", CHECK, ("prompts.path", "(a device)"), _file("/dev/zero")),
    Case(
        "models: config.json is a folder",
        CHECK,
        ("models.target.path", "config.json"),
        both(folder_at("my_model/config.json"), _model("target", source="folder", path="my_model")),
    ),
    Case(
        "models: config.json is a pipe",
        CHECK,
        ("models.target.path", "config.json"),
        both(pipe_at("my_model/config.json"), _model("target", source="folder", path="my_model")),
    ),
    Case(
        "models: a circle of links",
        CHECK,
        ("models.target.path", "circle"),
        both(circle_at("m"), _model("target", source="folder", path="m")),
    ),
    Case(
        "resume: a name too long",
        CHECK,
        ("training.checkpoint.resume", "too long"),
        params(training={"checkpoint": {"resume": "x" * 5000}}),
    ),
    Case(
        "resume: a file",
        CHECK,
        ("training.checkpoint.resume", "(a file)"),
        params(training={"checkpoint": {"resume": "params.yaml"}}),
    ),
    Case(
        "resume: a NUL",
        CHECK,
        ("training.checkpoint.resume", "NUL"),
        params(training={"checkpoint": {"resume": "a\0b"}}),
    ),
    Case(
        "resume: a circle of links",
        CHECK,
        ("training.checkpoint.resume", "circle"),
        both(circle_at("c"), params(training={"checkpoint": {"resume": "c"}})),
    ),
]
OTHERS = [
    Case(f"{name}", CHECK, says, arrange)
    for name, says, arrange in (
        (
            "a metric of training",
            ("training", "must name an evaluation metric"),
            params(training={"metric": "train/loss"}),
        ),
        (
            "harmless requests without a column of them",
            ("evaluation.benign_prompts: my/asked.csv must have the column 'prompt'",),
            both(
                write("my/asked.csv", "text\nhow so?\n"),
                params(evaluation={"benign_prompts": "my/asked.csv"}),
            ),
        ),
        (
            "a part without a pattern",
            ("training.parts.a.pattern must be given",),
            params(training={"parts": {"a": {}}}),
        ),
        (
            "a part that is no expression",
            ("training.parts.a", "regular expression"),
            params(training={"parts": {"a": {"pattern": "("}}}),
        ),
        (
            "a part that never begins",
            ("training.parts.a", "start < stop <= period"),
            params(training={"parts": {"a": {"pattern": "x", "start": 5}}}),
        ),
        (
            "a rank of zero",
            ("training.lora.rank", "greater than or equal to 1"),
            params(training={"lora": {"rank": 0}}),
        ),
        (
            "no module for adapters",
            ("training.lora.target_modules", "at least 1 item"),
            params(training={"lora": {"target_modules": []}}),
        ),
        (
            "a step of zero to dump",
            ("training.dump_steps.0", "greater than or equal to 1"),
            params(training={"dump_steps": [0]}),
        ),
        (
            "a limit of no stage",
            ("flow.timeouts_s must name stages, got 'trainning'",),
            params(flow={"timeouts_s": {"trainning": 5.0}}),
        ),
        (
            "a limit below zero",
            ("flow.timeouts_s.training", "greater than 0"),
            params(flow={"timeouts_s": {"training": -5.0}}),
        ),
        (
            "a model's name with a slash",
            ("registration.model_name", "should match pattern"),
            params(registration={"model_name": "a/b"}),
        ),
        (
            "a device that is not there",
            ("machine.device must be 'cpu' or 'auto'",),
            params(machine={"device": "cuda"}),
        ),
        (
            "a section that is not known",
            ("trainning is not a known key", "did you mean 'training'?"),
            params(trainning={}),
        ),
        ("a key of line breaks", ("is not a known key",), params(**{"a\nb\nc": 1})),
        ("a key of 900 letters", ("is not a known key",), params(**{"k" * 900: 1})),
        (
            "a value of 5,000 letters",
            ("prompts.source: input should be 'builtin'", "see 'astra params prompts.source'"),
            params(prompts={"source": "v" * 5000}),
        ),
        (
            "a list of 5,000 values",
            ("seed: input should be a valid integer", "see 'astra params seed'"),
            params(seed=list(range(5000))),
        ),
        (
            "a seed beyond 64 bits",
            ("seed must be a number of at most 18 digits",),
            params(seed=10**30),
        ),
        (
            "an option beyond 64 bits",
            ("training.algorithm.options.beta must be a number of at most 18",),
            plugin_values.plugin("algorithm", "dpo", beta=10**30),
        ),
        (
            "half a character",
            ("must be YAML, got: found invalid Unicode character escape code (line ",),
            params(registration={"experiment": "\ud83d"}),
        ),
        ("a NaN", ("training.lr", "finite number"), write("params.yaml", "training: {lr: .nan}\n")),
        (
            "an infinity",
            ("training.lr", "finite number"),
            write("params.yaml", "training: {lr: .inf}\n"),
        ),
        (
            "yes for true",
            ("training.eval_first", "valid boolean, got 'yes'"),
            write("params.yaml", "training: {eval_first: yes}\n"),
        ),
    )
]
SIZES = [
    Case(f"sizes: {keys}", CHECK, says, arrange)
    for keys, says, arrange in (
        (
            "tree_depth of 200",
            ("sampler 'tree' options.tree_depth", "less than or equal to 128"),
            plugin_values.plugin("sampler", "tree", tree_depth=200),
        ),
        (
            "4 to the power of 20 turns",
            ("rollouts must ask for at most 10000000 probes and replies", "width 4 and depth 20"),
            plugin_values.plugin("sampler", "tree", tree_depth=20),
        ),
        (
            "10,000 siblings",
            ("at most 10000000", "width 10000 and depth 2", "lower one of these"),
            plugin_values.plugin("sampler", "tree", tree_width=10_000),
        ),
        (
            "refills",
            ("at most 10000000", "refills=1000000"),
            plugin_values.plugin("sampler", "tree", refills=1_000_000),
        ),
        (
            "episodes",
            ("training must ask for at most 10000000", "got 1000000000 trees"),
            params(training={"num_episodes_per_experience": 10**9}),
        ),
        (
            "replies of an evaluation",
            ("evaluation must ask for at most 10000000", "num_responses=1000000"),
            params(evaluation={"num_responses": 10**6}),
        ),
        (
            "evaluation.depth",
            ("evaluation.depth", "less than or equal to 128"),
            params(evaluation={"depth": 129}),
        ),
        (
            "resamples",
            ("evaluation.num_resamples", "less than or equal to 100000"),
            params(evaluation={"num_resamples": 10**7}),
        ),
        (
            "prompts of a duel",
            ("promotion.num_prompts must be at most 500000",),
            params(promotion={"num_prompts": 10**6}),
        ),
        (
            "a wait that no clock counts",
            ("flow.timeout_s", "less than or equal to 1000000000"),
            params(flow={"timeout_s": 1e300}),
        ),
        (
            "no such port",
            ("endpoint: base_url must name a port from 1 to 65535", "127.0.0.1:99999"),
            _endpoint(base_url="http://127.0.0.1:99999/v1"),
        ),
        (
            "a folder for a key",
            ("key_file must be a file, got", "(a folder)"),
            _endpoint(base_url="http://127.0.0.1:9/v1", key_file="my_model"),
        ),
        (
            "no separator",
            ("system.separator", "at least 1 character"),
            params(system={"separator": ""}),
        ),
        (
            "workers",
            ("executor 'processes' options.num_workers", "less than or equal to 1024"),
            params(executor={"name": "processes", "options": {"num_workers": 10**6}}),
        ),
        (
            "tokens of a reply",
            ("system.response.max_new_tokens", "less than or equal to 1048576"),
            params(system={"response": {"max_new_tokens": 10**9}}),
        ),
    )
]
CASES = [*plugin_values.CASES, *MODELS, *BUILTIN, *PROMPTS, *LINKS, *OTHERS, *SIZES]

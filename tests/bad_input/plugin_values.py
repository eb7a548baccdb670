"""Plug-ins, their options and what follows a choice, as params.yaml may name them wrongly."""

from cases import CHECK, Case, params


def plugin(kind, name, /, **options):
    choice = {"name": name, "options": options}
    places = {
        "scorer": {"system": {"scorer": choice}},
        "sampler": {"rollouts": {"sampler": choice}},
        "reward": {"reward": choice},
    }
    return params(**places.get(kind, {"training": {kind: choice}}))


PLUGINS = [
    Case(f"{kind}: no such name", CHECK, (f"unknown {kind} 'nonsense'", "built-ins are"), arrange)
    for kind, arrange in (
        (kind, plugin(kind, "nonsense"))
        for kind in ("scorer", "sampler", "reward", "algorithm", "optimizer", "schedule", "trainer")
    )
]
PLUGINS += [
    Case(f"{kind}: a slip of the pen", CHECK, (f"did you mean '{right}'?",), plugin(kind, wrong))
    for kind, wrong, right in (
        ("scorer", "profanty", "profanity"),
        ("sampler", "treee", "tree"),
        ("reward", "adversaria", "adversarial"),
        ("algorithm", "grop", "grpo"),
        ("optimizer", "adamww", "adamw"),
        ("schedule", "anealing", "annealing"),
        ("trainer", "traner", "trainer"),
    )
]
PLUGINS += [
    Case(f"plug-in {name}", CHECK, (f"scorer '{name}'", *says), plugin("scorer", name))
    for name, says in {
        "no_such_module:Scorer": ("must be importable, got ModuleNotFoundError", "check the path"),
        "json:nothing": ("must be importable, got AttributeError",),
        "json:dumps": ("must be a class, got function", "name the class itself"),
        ":": ("must be importable",),
        "a b:c": ("must be importable",),
        "lab/mine.py:Scorer": ("must name a file that exists", "relative to the project"),
        "params.yaml/:Scorer": ("must name a file that ends in .py",),
        "plugins/lessons.py": ("must name a file and a class",),
    }.items()
]
PLUGINS += [
    Case(f"options of {kind} {name}: {key} = {value!r}", CHECK, (f"options.{key}", rule), arrange)
    for kind, name, key, value, rule, arrange in (
        (kind, name, key, value, rule, plugin(kind, name, **{key: value}))
        for kind, name, key, value, rule in (
            ("algorithm", "dpo", "beta", -1.0, "greater than 0"),
            ("algorithm", "dpo", "betta", 1.0, "did you mean 'beta'?"),
            ("algorithm", "dpo", "loss", "huge", "'sigmoid'"),
            ("algorithm", "dpo", "pairs", 3, "'best_worst' or 'all'"),
            ("algorithm", "dpo", "loss", {"huge": 1.0}, "'sigmoid'"),
            ("algorithm", "grpo", "clip_low", 2.0, "less than"),
            ("algorithm", "grpo", "scale", "all", "'group', 'batch' or 'none'"),
            ("algorithm", "ppo", "clip_low", "x", "valid number"),
            ("algorithm", "rloo", "kl", "some", "'none', 'reward' or 'loss'"),
            ("algorithm", "expert_iteration", "selection", "all", "'top_k'"),
            ("algorithm", "distillation", "teacher", "me", "'reference' or 'target'"),
            ("sampler", "tree", "tree_width", 0, "greater than or equal to 1"),
            ("sampler", "tree", "tree_depth", 1.5, "valid integer"),
            ("reward", "adversarial", "novelty_decay", 2.0, "less than or equal to 1"),
            ("reward", "adversarial", "nll_weight", "x", "valid number"),
            ("optimizer", "adamw", "weight_decay", -1.0, "greater than or equal to 0"),
            ("schedule", "transformers", "kind", "wave", "'constant'"),
            ("schedule", "annealing", "kind", "cosine", "'linear' or 'exponential'"),
            ("schedule", "plateau", "factor", 1.0, "less than 1"),
            ("schedule", "plateau", "metric", "score", "pattern"),
            ("schedule", "transformers", "arguments", {"power": [1]}, "number or a valid integer"),
            ("schedule", "transformers", "arguments", {"power": None}, "or a valid string"),
            ("scorer", "phrases", "phrases", "bad", "valid"),
        )
    )
]
SINKS = [
    Case(f"tracking.sinks: {sinks}", CHECK, says, params(tracking={"sinks": sinks}))
    for sinks, says in (
        (["mlflw"], ("unknown sink 'mlflw'; built-ins are ['csv', 'mlflow', 'tensorboard'",)),
        (["csv", "csv"], ("must name each sink once",)),
        (["json:dumps"], ("sink 'json:dumps' must be a class",)),
        ([{"name": "csv", "options": {"a": 1}}], ("sink 'csv' options",)),
    )
]
FOLLOWING = [
    Case(
        f"a schedule that follows {figure}, evaluated {scheme}",
        CHECK,
        says,
        params(
            training={
                "evaluate": scheme,
                "schedule": {"name": "plateau", "options": {"metric": figure}},
            }
        ),
    )
    for scheme, figure, says in (
        ("none", "eval/score_mean", ("training.evaluate must be 'every'", "got 'none'")),
        ("last", "eval/score_mean", ("which follows eval/score_mean, got 'last'",)),
        ("every", "eval/score_men", ("training.schedule must name", "'eval/score_mean'?")),
    )
]

CASES = [*PLUGINS, *SINKS, *FOLLOWING]

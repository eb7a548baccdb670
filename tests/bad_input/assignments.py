"""``astra run --set``: wrong assignments, and right ones to a file that cannot be read."""

from cases import Case, unreadable_at, write
from params_files import LOCAL, SUBJECT

WRONG = (
    ("seed", "--set must read section.key=value, got 'seed'"),
    ("=5", "--set must read section.key=value"),
    ("seed.=5", "--set must read section.key=value"),
    ("training..lr=1", "--set must read section.key=value"),
    ("", "--set must read section.key=value"),
    ("x" * 5000, "--set must read section.key=value"),
    ("x" * 5000 + "=1", "is not a known key"),
    ("training.lr=" + "9" * 5000, "value of training.lr must be plain YAML"),
    ("seed=!x 5", "value of seed must be plain YAML, got '!x 5'; put quotes around a text"),
    ("seed=!!python/name:os.system", "value of seed must be plain YAML"),
    ("seed=[1", "value of seed must be plain YAML, got '[1'"),
    ("seed={a: 1, a: 2}", "value of seed must be plain YAML"),
    ("seed=*a", "value of seed must be plain YAML"),
    ("seed=&a [*a]", "value of seed must be plain YAML"),
    ("seed=" + "[" * 3000, "value of seed must be plain YAML"),
    ("seed=\x07", "value of seed must be plain YAML"),
    ("seed=a: b: c", "value of seed must be plain YAML"),
    ("seed=1\n--- 2", "value of seed must be plain YAML"),
    ("seed=", "seed: input should be a valid integer, got ''"),
    ("seed=one", "seed: input should be a valid integer, got 'one'"),
    ("seed=1.5", "seed: input should be a valid integer, got 1.5"),
    ("seed=-1", "seed: input should be greater than or equal to 0, got -1"),
    ("seed=99999999999999999999", "seed must be a number of at most 18 digits"),
    ("seed=2024-01-01", "must hold plain values"),
    ("seed.x=1", "seed.x must lead to a value, got one value at 'seed'"),
    ("training.dump_steps.0=1", "training.dump_steps: input should be a valid array"),
    ("training=5", "training: input should be an object, got 5"),
    ("training.lrr=1", "training.lrr is not a known key; did you mean 'lr'?"),
    ("trainning.lr=1", "trainning is not a known key; did you mean 'training'?"),
    ("training.lr=0", "training.lr: input should be greater than 0, got 0"),
    ("training.lr=.nan", "training.lr: input should be a finite number"),
    ("training.algorithm.name=pppo", "unknown algorithm 'pppo'"),
    ("training.algorithm.options.betta=1", "did you mean 'beta'?"),
    ("training.algorithm=pppo", "unknown algorithm 'pppo'"),
    ("training.algorithm=7", "training.algorithm: input should be an object, got 7"),
    ("models.builtin.num_heads=3", "models.builtin.hidden_size must be a multiple of twice"),
    ("models.attacker.source=folder", "path must name a folder"),
    ("flow.timeouts_s={trainin: 5}", "flow.timeouts_s must name stages, got 'trainin'"),
    ("machine.device=tpu", "machine.device: input should be 'auto', 'cpu' or 'cuda', got 'tpu'"),
)
# Where the wrong value is the very one that is set, the assignment is the way out.
REPLACED = {"5,000 digits of another base", "bytes", "no bytes", "a set"}
# A source that is not a file leaves prompts.path unread, so the two are set together.
FILE = ("--set", "prompts.source=file", "--set", "prompts.path=" + "x" * 5000)

CASES = [
    *(
        Case(f"--set {text[:40]!r} ({len(text)})", ("astra", "run", "--set", text), (words,))
        for text, words in WRONG
    ),
    Case("--set a path of 5,000 letters", ("astra", "run", *FILE), ("prompts.path", "too long")),
    Case(
        "--set a right and a wrong one",
        ("astra", "run", "--set", "seed=3", "--set", "training.lr=x"),
        ("training.lr: input should be a valid number, got 'x'",),
    ),
    *(
        Case(
            f"--set over a file: {name}",
            ("astra", "run", "--set", "seed=3"),
            (words,),
            write(SUBJECT, content),
        )
        for name, content, words in LOCAL
        if name not in REPLACED
    ),
    Case(
        "--set over an unreadable file",
        ("astra", "run", "--set", "seed=3"),
        ("params.yaml must be readable",),
        unreadable_at(SUBJECT),
    ),
]

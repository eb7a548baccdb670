"""params.yaml itself, damaged in every way that an editor, a merge or a prank can."""

from cases import CHECK, Case, circle_at, cut, folder_at, pipe_at, unreadable_at, without, write

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{own}: &{own} [{','.join([f'*{before}'] * 9)}]\n"
    for before, own in zip("abcdefgh", "bcdefghi", strict=True)
)
LOCAL = (
    ("without a mapping", "- seed\n", "must be a mapping of sections, got list"),
    ("empty", "", "must be a mapping of sections, got nothing"),
    ("only a comment", "# nothing\n", "must be a mapping of sections, got nothing"),
    ("a number", "5\n", "must be a mapping of sections, got int"),
    ("a text", "hello\n", "must be a mapping of sections, got str"),
    ("two documents", "seed: 1\n---\nseed: 2\n", "got: "),
    ("a repeated key", "seed: 1\nseed: 2\n", "duplicate key"),
    ("a repeated section", "seed: 1\ntraining: {}\ntraining: {}\n", "duplicate key"),
    ("an open bracket", "seed: [1\n", "(line 2)"),
    ("an open quote", 'seed: "1\n', "must be YAML"),
    ("a colon in brackets", "system: {scorer: {name: a.py:B}}\n", "needs quotes (line 1)"),
    ("a tab", "training:\n\tlr: 1\n", "(line 2)"),
    ("a wrong indent", "training:\n  lr: 1\n epochs: 2\n", "(line 3)"),
    ("marks of a merge", "<<<<<<< HEAD\nseed: 1\n=======\nseed: 2\n>>>>>>> x\n", "must be YAML"),
    ("a tag of Python", "seed: !!python/object/apply:os.system [ls]\n", "(line 1)"),
    ("a tag of nobody", "seed: !x 5\n", "(line 1)"),
    ("a date", "registration: {experiment: 2024-01-01}\n", "put quotes around dates"),
    ("no such date", "registration: {experiment: 2024-13-45}\n", "must be YAML of plain values"),
    ("bytes", "seed: !!binary aGVsbG8=\n", "plain values"),
    ("no bytes", "seed: !!binary '*'\n", "plain values"),
    ("a set", "seed: !!set {a}\n", "plain values"),
    ("a list for a key", "? [a, b]\n: 1\n", "plain values"),
    ("an unknown alias", "seed: *a\n", "alias"),
    ("an anchor of itself", "seed: &a [*a]\n", "an anchor that holds itself, *a (line 1)"),
    ("a mapping of itself", "a: &a\n  b: *a\n", "an anchor that holds itself, *a (line 2)"),
    ("a merge of nothing", "a:\n  <<: 5\n", "must be YAML"),
    ("5,000 digits", f"seed: {'9' * 5000}\n", "must be YAML of plain values"),
    ("5,000 digits of another base", f"seed: 0x{'f' * 5000}\n", "at most 18 digits"),
    ("60 levels", f"seed: {'[' * 60}{']' * 60}\n", "more than 50 levels"),
    ("60 levels of blocks", "".join(f"{' ' * i}a:\n" for i in range(60)), "more than 50 levels"),
    ("30,000 values", f"seed: [{'1,' * 30_000}]\n", "more than 20000 values"),
    ("a mebibyte", f"# {'x' * (1 << 20)}\n", "at most 256 KiB"),
    ("a control character", "seed: \x07\n", "must be YAML"),
    ("a NUL", "seed: 1\0\n", "must be YAML"),
    ("Latin-1", "# für\nseed: 1\n".encode("latin-1"), "must be UTF-8, got the byte 0xfc in line 1"),
    ("UTF-16", "seed: 1\n".encode("utf-16"), "must be UTF-8, got the byte 0xff in line 1"),
    ("UTF-16 without a mark", "seed: 1\n".encode("utf-16-le"), "must be YAML"),
    ("UTF-32", "seed: 1\n".encode("utf-32"), "must be UTF-8"),
    ("binary", bytes(range(256)), "must be"),
    ("a picture", b"\x89PNG\r\n\x1a\n" + bytes(100), "must be UTF-8, got the byte 0x89"),
    ("compressed", b"\x1f\x8b\x08\x00" + bytes(20), "must be UTF-8, got the byte 0x8b"),
    ("JSON cut short", '{"seed": 1, "training": {"lr"', "must be YAML"),
)
SUBJECT = "params.yaml"


def _subject(name: str, words: str) -> tuple[str, ...]:
    # Of a value that was built, the key is named and not the file.
    return (words,) if name in {"5,000 digits of another base", "a date"} else (SUBJECT, words)


CASES = [
    *(
        Case(f"params.yaml: {name}", CHECK, (words,), write(SUBJECT, content))
        for name, content, words in LOCAL
    ),
    Case("params.yaml: away", CHECK, ("must exist, got no such file",), without(SUBJECT)),
    Case("params.yaml: a folder", CHECK, ("must be a file, got a folder",), folder_at(SUBJECT)),
    Case("params.yaml: links in a circle", CHECK, ("must be a file",), circle_at(SUBJECT)),
    Case("params.yaml: unreadable", CHECK, ("must be readable",), unreadable_at(SUBJECT)),
    Case("params.yaml: cut short", CHECK, ("params.yaml",), cut(SUBJECT, 0.013)),
    *(
        Case(
            f"{' '.join(command)}: params.yaml in Latin-1",
            command,
            ("must be UTF-8",),
            write(SUBJECT, "# für\n".encode("latin-1")),
        )
        for command in (
            ("tasks", "--render"),
            ("tasks", "--render", "--check"),
            ("tasks", "prompts"),
            ("tasks", "models"),
            ("tasks", "training"),
            ("astra", "check"),
            ("astra", "render"),
            ("astra", "run"),
            ("astra", "rollback"),
        )
    ),
    Case(
        "params.yaml: a pipe", CHECK, ("must be a file, got a pipe",), pipe_at(SUBJECT), alone=True
    ),
    Case(
        "astra check: a pipe",
        ("astra", "check"),
        ("must run in a folder with params.yaml",),
        pipe_at(SUBJECT),
        alone=True,
    ),
    *(
        Case(f"{' '.join(command)}: {name}", command, (words,), write(SUBJECT, content), alone=True)
        for command in (CHECK, ("astra", "check"), ("astra", "run", "--set", "seed=1"))
        for name, content, words in (
            ("a bomb of aliases", BOMB, "more than 20000 values, aliases written out"),
            ("3,000 levels", f"seed: {'[' * 3000}{']' * 3000}\n", "more than 50 levels"),
            ("3,000 open levels", f"seed: {'{' * 3000}", "more than 50 levels"),
        )
    ),
]

"""The built-in model of the default settings, trained beforehand and kept beside this module.

To train it takes a minute and more, and gives what is kept here, up to the machine's rounding: a
first run need not wait for it. Whoever asks for another seed or setting, or changes what the model
reads or how, has one trained. ``python -m tasks.builtin.shipped`` trains and keeps it again.
"""

import shutil
import sys
from pathlib import Path

from astra_core.files import draft_folder_of, file_digest, read_json, record_digest, write_json
from tasks.builtin.language_model import (
    LanguageModelConfiguration,
    make_language_model,
    save_language_model,
)

PACKAGE = Path(__file__).parent
FOLDER = "shipped_model"
RECIPE = "recipe.json"

# Of the model that is kept: what params.yaml says where nobody has changed it.
_SEED = 0


def recipe_digest(config: LanguageModelConfiguration, *, seed: int, package: Path = PACKAGE) -> str:
    """Names everything of ours that a built-in model is made from; libraries only round otherwise.

    ``seed``: of the dialogues, the initial weights and the order. ``package``: holds the code that
    makes dialogues and model.
    """
    sources = [path for path in sorted(package.glob("*.py")) if path.name != Path(__file__).name]
    code = {path.name: file_digest(path) for path in sources}
    return record_digest({"config": config.model_dump(), "seed": seed, "code": code})


def shipped_model(
    config: LanguageModelConfiguration, *, seed: int, package: Path = PACKAGE
) -> Path | None:
    """The Hugging Face folder of the model that these arguments would train, if it is kept.

    ``package``: holds the code, and the folder ``shipped_model``.
    """
    folder = package / FOLDER
    recipe = folder / RECIPE
    if not recipe.is_file():
        return None
    kept = read_json(recipe).get("recipe")
    return folder if kept == recipe_digest(config, seed=seed, package=package) else None


def copy_model(source: Path, folder: Path) -> None:
    """Leaves ``folder`` holding the checkpoint that is kept, whole or as it was before.

    ``source``: from ``shipped_model``. ``folder``: replaced if it exists.
    """
    with draft_folder_of(folder) as draft:
        shutil.copytree(source, draft, ignore=shutil.ignore_patterns(RECIPE), dirs_exist_ok=True)


def keep_model(config: LanguageModelConfiguration, *, seed: int, package: Path = PACKAGE) -> Path:
    """Trains a model and keeps it as the one that is shipped.

    ``package``: holds the code; receives the folder ``shipped_model``.
    """
    from astra_core.models.pretrained import weights_digest

    folder = package / FOLDER
    with draft_folder_of(folder) as draft:
        save_language_model(*make_language_model(config, seed=seed), draft)
        record = {
            "recipe": recipe_digest(config, seed=seed, package=package),
            "weights": weights_digest(draft),
        }
        write_json(record, draft / RECIPE)
    return folder


def main() -> None:
    """Keeps the model of the default settings, trained on one thread as the stage does."""
    import torch

    torch.set_num_threads(1)
    sys.stdout.write(f"{keep_model(LanguageModelConfiguration(), seed=_SEED)}\n")


if __name__ == "__main__":
    main()

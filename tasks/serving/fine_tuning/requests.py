"""What a client may ask of a job, and the settings that follow from it."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from tasks.serving.wire import Body

KEY = "idempotency_key"
_AUTO_EPOCHS = {"supervised": 3, "dpo": 1}
_AUTO_BATCH = 8

Auto = Literal["auto"]
# A factor beyond these makes of every model noise, or nothing but overflow.
Factor = Annotated[float, Field(ge=1e-6, le=1e4)]
Text64 = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Text512 = Annotated[str, StringConstraints(max_length=512)]


class Hyperparameters(Body):
    """How a job learns; ``auto`` leaves it to this service."""

    batch_size: Auto | Annotated[int, Field(ge=1, le=256)] = "auto"
    learning_rate_multiplier: Auto | Factor = "auto"
    n_epochs: Auto | Annotated[int, Field(ge=1, le=50)] = "auto"


class DpoHyperparameters(Hyperparameters):
    """The hyperparameters of preference learning."""

    beta: Auto | Factor = "auto"


class _Supervised(Body):
    hyperparameters: Hyperparameters = Hyperparameters()


class _Dpo(Body):
    hyperparameters: DpoHyperparameters = DpoHyperparameters()


class Method(Body):
    """Supervised learning, or preference learning by DPO; no other is offered."""

    type: Literal["supervised", "dpo"]
    supervised: _Supervised | None = None
    dpo: _Dpo | None = None

    @model_validator(mode="after")
    def _holds_its_own_settings(self) -> "Method":
        other = self.supervised if self.type == "dpo" else self.dpo
        if other is not None:
            msg = f"method of type '{self.type}' must have the settings of that type only"
            raise ValueError(msg)
        return self


class JobBody(Body):
    """The body of ``POST /v1/fine_tuning/jobs``."""

    model: str
    training_file: str
    method: Method = Method(type="supervised")
    hyperparameters: Hyperparameters | None = None
    suffix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] | None = None
    seed: int | None = Field(None, ge=0, lt=2**62)
    metadata: Annotated[dict[Text64, Text512], Field(max_length=16)] | None = None
    # These are in the interface but not offered here: only null is accepted.
    validation_file: None = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _names_its_settings_once(self) -> "JobBody":
        if self.hyperparameters is not None and "method" in self.model_fields_set:
            msg = "hyperparameters must be in method only, got both"
            raise ValueError(msg)
        return self

    @property
    def key(self) -> str | None:
        """The key by which a repeated request makes no second job: ``metadata.idempotency_key``."""
        return (self.metadata or {}).get(KEY)

    @property
    def asked(self) -> Hyperparameters:
        """The requested settings of the method."""
        own = self.method.dpo if self.method.type == "dpo" else self.method.supervised
        if own is not None:
            return own.hyperparameters
        return self.hyperparameters or DpoHyperparameters()

    def settle(self, num_examples: int) -> dict[str, Any]:
        """The settings with a number for every ``auto``."""
        asked, kind = self.asked, self.method.type
        found: dict[str, Any] = {
            "n_epochs": _or(asked.n_epochs, _AUTO_EPOCHS[kind]),
            "batch_size": min(_or(asked.batch_size, _AUTO_BATCH), max(1, num_examples)),
            "learning_rate_multiplier": _or(asked.learning_rate_multiplier, 1.0),
        }
        if kind == "dpo":
            found["beta"] = _or(getattr(asked, "beta", "auto"), 0.1)
        return found


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value == "auto" else value

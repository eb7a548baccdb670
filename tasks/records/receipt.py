"""``reports/registration.json``: proof that an attacker is in the registry."""

from dataclasses import dataclass
from pathlib import Path

RECEIPT = Path("reports/registration.json")


@dataclass(frozen=True, slots=True)
class RegistrationReceipt:
    """Which version in which store the attacker is."""

    model_name: str
    version: str
    run_id: str
    experiment_id: str
    tracking_uri: str
    checkpoint_digest: str
    evaluation_key: str = ""

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.model_name} version {self.version} is candidate "
            f"(checkpoint {self.checkpoint_digest[:12]}, run {self.run_id[:12]})"
        )

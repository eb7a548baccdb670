"""The target trained on findings, and what that has changed; ``flows.hardening`` runs it."""

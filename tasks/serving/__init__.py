"""Code that travels with a registered model; it needs MLflow, torch and transformers only."""

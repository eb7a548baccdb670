"""The names of the stages, in the order in which they can run."""

STAGE_NAMES = (
    "prompts",
    "validation",
    "models",
    "rollouts",
    "training",
    "evaluation",
    "registration",
)
PROMOTION = "promotion"  # the decision after the stages, which is not a stage

"""Changes of params.yaml under which a whole run takes seconds."""

SMALL = (
    "prompts.num_builtin=300",
    "models.builtin.num_quarrels=200",
    "models.builtin.num_dialogues=40",
    "models.builtin.hidden_size=16",
    "rollouts.num_prompts=4",
    "training.training_steps=1",
    "evaluation.num_prompts=10",
    "evaluation.num_training_prompts=10",
)

"""The fine-tuning part of the OpenAI interface, on our own Trainer: files, jobs, their queue."""

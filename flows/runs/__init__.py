"""One run of the pipeline, with or without Prefect: its request, plan, attempts and summary."""

"""One run of the pipeline, without what is Prefect's: its request, plan, attempts and summary."""

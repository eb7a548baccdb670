"""One run of the pipeline, with or without Prefect: what is asked, planned, tried and told."""

"""What Prefect runs and shows: stages as tasks, reports, deployments, lost runs."""

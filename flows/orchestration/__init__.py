"""What Prefect is told: stages as tasks, reports, deployments, lost runs."""

"""The database and the files behind MLflow: checked, moved and cleaned up."""

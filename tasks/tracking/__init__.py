"""Everything that knows MLflow: runs, their store, model versions and what is kept with them."""

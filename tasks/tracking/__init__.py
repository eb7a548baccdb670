"""All code that uses MLflow: runs, their store, model versions and what is kept with them."""

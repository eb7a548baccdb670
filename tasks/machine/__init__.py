"""The machine a stage runs on: processes, environment, screen, temporary files, file modes."""

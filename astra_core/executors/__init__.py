"""The built-in executors, and what their workers hold."""

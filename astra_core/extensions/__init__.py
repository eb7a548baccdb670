"""Third-party code: calls of plug-ins, and checks of what they return."""

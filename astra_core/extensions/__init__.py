"""Code that is not ours: calls of plug-ins, and what they promise to give back."""

"""Many runs of one project over settings and seeds, each point in its own workspace."""

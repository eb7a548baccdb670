"""Many runs of one project: settings and seeds, each point in a workspace of its own."""

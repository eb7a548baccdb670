"""The figures of an evaluation: rates by category and turn, belief in the judge, examples."""

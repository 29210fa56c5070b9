"""Check a policy: whether the tokens and log probs that a trainer gets are those that were sampled."""

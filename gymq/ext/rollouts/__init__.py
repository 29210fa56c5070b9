"""`gymq rollouts`: runs and rollouts, read in a terminal."""

"""`gymq rollouts` and `gymq profile`: runs, rollouts and statistics, read in a terminal."""

"""The viewer: runs, their statistics, their rollouts, live. Runs change only where a reader asks for it."""

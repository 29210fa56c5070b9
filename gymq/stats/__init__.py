"""Statistics of a run: rewards, pass@k and confidence intervals, while it runs and from its files."""

"""The library verifiers: its results and episodes, an environment server for prime-rl, tasksets of gymq."""

"""`gymq top`: a cluster, watched in a terminal."""

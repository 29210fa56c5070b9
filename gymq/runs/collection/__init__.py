"""A collection: from the rows of a data set to their rollouts in a file."""

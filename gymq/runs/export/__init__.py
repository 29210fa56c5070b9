"""A stored run as files, as a table, and in experiment trackers."""

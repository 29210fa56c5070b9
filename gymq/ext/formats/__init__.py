"""Files of other programs, read and written, and a run as a table, a training set or an experiment."""

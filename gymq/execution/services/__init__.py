"""What runs beside the workers: tasks by hand, queues of runs, tasks that no agent finishes, statistics."""

"""What authors of workers use: `gymq init` and `gymq test`."""

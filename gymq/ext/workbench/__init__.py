"""What authors of workers use: `gymq init`, `test`, `list` and `config`."""

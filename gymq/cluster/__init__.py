"""A cluster: its NATS server, and the worker processes on this machine or on Ray, each perhaps with its own Python."""

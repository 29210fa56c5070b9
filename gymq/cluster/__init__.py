"""A NATS server and worker processes: one of them, all of them on this machine, on Ray, in environments of their own."""

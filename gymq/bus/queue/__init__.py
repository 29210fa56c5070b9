"""Tasks and outcomes in JetStream: put into the queue, pulled, stored, cancelled, dead letters."""

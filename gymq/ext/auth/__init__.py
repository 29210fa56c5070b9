"""`gymq auth`: a NATS server where each role may do only what it needs."""

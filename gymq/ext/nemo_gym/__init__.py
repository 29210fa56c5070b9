"""NeMo Gym's interface in front of the queue: its HTTP servers, its commands and its Python package."""

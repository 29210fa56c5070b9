"""`gymq score`: stored responses verified again, without a model."""

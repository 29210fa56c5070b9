"""Adapters of trainers: TRL, verl, SkyRL, ART, NeMo RL."""

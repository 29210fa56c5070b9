"""New weights for a model: pushed, loaded by each replica, and how stale a rollout may become."""

from gymq.bus.weights.pushing import Pushed, PushError, announce, push

__all__ = ["PushError", "Pushed", "announce", "push"]

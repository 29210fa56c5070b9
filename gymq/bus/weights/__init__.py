"""New weights for a model: pushed, loaded by each replica, and how stale a rollout may become."""

from gymq.bus.weights.pushing import Pushed, announce, push

__all__ = ["Pushed", "announce", "push"]

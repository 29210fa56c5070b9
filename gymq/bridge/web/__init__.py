"""The viewer of a bridge: runs, their statistics, their rollouts, live. It changes runs only where a reader asks for it."""

from gymq.bridge.web.routes import WebRoutes

__all__ = ["WebRoutes"]

"""The viewer of a bridge: runs, their statistics, their rollouts, live. Runs change only where a reader asks for it."""

from gymq.bridge.web.routes import WebRoutes

__all__ = ["WebRoutes"]

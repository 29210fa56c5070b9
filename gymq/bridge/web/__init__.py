"""The viewer of a bridge: runs, their statistics, their rollouts, live. It only reads."""

from gymq.bridge.web.routes import WebRoutes

__all__ = ["WebRoutes"]

"""Model endpoints for programs that know a base URL and a key: OpenAI's, Anthropic's and Google's APIs."""

from gymq.ext.gateway.capture import Capture
from gymq.ext.gateway.gateway import Admission, Gateway, asks_through

__all__ = ["Admission", "Capture", "Gateway", "asks_through"]

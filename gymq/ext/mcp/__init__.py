"""The Model Context Protocol, in both directions.

`McpResources` is an environment whose tools are those of MCP servers. `ToolGateway` serves the tools of a rollout's
session to programs that speak MCP. Both need the extra `mcp`.
"""

from gymq.ext.mcp.environment import McpOptions as McpOptions
from gymq.ext.mcp.environment import McpResources as McpResources
from gymq.ext.mcp.environment import McpTools as McpTools
from gymq.ext.mcp.gateway import Offer as Offer
from gymq.ext.mcp.gateway import ToolGateway as ToolGateway
from gymq.ext.mcp.servers import ServerOptions as ServerOptions

"""MCP: memory as tools, resources and prompts for agents."""

"""How conversations and tool calls become tokens, and sampled tokens become calls again."""

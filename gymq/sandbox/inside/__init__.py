"""What runs in front of a sandboxed program. Only the standard library, and little of it: each run starts it anew."""

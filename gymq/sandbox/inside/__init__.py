"""The programs that run in front of a sandboxed one. Small and standard library only: each run starts them."""

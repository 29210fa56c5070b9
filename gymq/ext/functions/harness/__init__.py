"""The programs that call and test functions in a sandbox. Standard library only: gymq is not installed there."""

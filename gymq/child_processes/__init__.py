"""Processes that gymq starts: their end with their parent, files as modules in them, Ray clusters to run them on."""

"""Mocks for what resources workers call outside: one module per worker, named like it.

A module has `install(author, components)`, which makes the worker ask the `ScriptedComponents` instead.
"""

"""The names that trainers import from NeMo Gym, served by gymq.

Not installed as a package: to use it, put the folder above this one at the start of the import path, as in
`PYTHONPATH=$(gymq bridge --drop-in)`.
"""

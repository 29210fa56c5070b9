"""The names that trainers import from NeMo Gym, served by gymq.

Not installed as a package: whoever wants it puts the folder above this one in front of the import path, as in
`PYTHONPATH=$(gymq bridge --drop-in)`.
"""

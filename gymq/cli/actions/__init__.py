"""The work of the commands.

Their options are in the files beside this folder, which import nothing heavy: see `gymq.cli`. Every `GymqError` that is
raised here ends the command with its message, in `gymq.cli.main`.
"""

"""The work of the commands.

Their options are in the files beside this folder, which import nothing heavy: see `gymq.cli`.
"""

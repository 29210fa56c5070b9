"""Suites and resources workers whose case files may be skipped because they do not exist yet.

A name leaves this list when its suite or worker is added: a case file whose name is not here must pass.
"""

NOT_BUILT_YET: list[str] = []

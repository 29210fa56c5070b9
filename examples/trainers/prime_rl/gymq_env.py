"""Environments of gymq as a taskset of verifiers, in its process: `vf-eval gymq_env`; gymq has to be installed there.

`env = { taskset = { id = "gymq_env", rows = "rows.jsonl", environment = "my_env.py" } }`.
"""

from gymq.ext.verifiers.taskset import EnvironmentEnv, EnvironmentHarness, EnvironmentTaskset

__all__ = ["EnvironmentEnv", "EnvironmentHarness", "EnvironmentTaskset"]

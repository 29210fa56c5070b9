"""NeMo Gym's commands, `ng_run`, `ng_collect_rollouts` and others, in terms of gymq's."""

"""Checking a policy: whether the tokens and log probs that a trainer gets are those that were sampled."""

from gymq.testing.policy.battery import Ask
from gymq.testing.policy.findings import Finding, check_policy
from gymq.testing.policy.reference import Reference
from gymq.testing.policy.source import Source, SourceError, Unknown
from gymq.testing.policy.vllm_prompts import PromptLogProbs

__all__ = ["Ask", "Finding", "PromptLogProbs", "Reference", "Source", "SourceError", "Unknown", "check_policy"]

"""Checking a policy: whether the tokens and log probs that a trainer gets are those that were sampled."""

from gymq.testing.policy.battery import Ask
from gymq.testing.policy.findings import Finding, check_policy
from gymq.testing.policy.reference import PolicyReference
from gymq.testing.policy.source import LogProbSource, SourceError, Unknown
from gymq.testing.policy.vllm_prompts import PromptLogProbs

__all__ = [
    "Ask",
    "Finding",
    "LogProbSource",
    "PolicyReference",
    "PromptLogProbs",
    "SourceError",
    "Unknown",
    "check_policy",
]

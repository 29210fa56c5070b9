"""Settings that scripts for data sets ask for."""

from __future__ import annotations

import os

HF_TOKEN_KEY_NAME = "hf_token"


def get_hf_token() -> str | None:
    """Return the user's token for the Hugging Face Hub, if there is one."""
    return os.environ.get("HF_TOKEN") or None


def get_global_config_dict() -> dict[str, str]:
    """Return the settings of this user, of which scripts read the token."""
    token = get_hf_token()
    return {} if token is None else {HF_TOKEN_KEY_NAME: token}

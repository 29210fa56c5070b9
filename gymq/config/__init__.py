"""The configuration: YAML files in the format of NeMo Gym, merged, resolved and checked.

`load` gives a `Config`, or a `ConfigError` that says in one line what is wrong and where.
"""

from gymq.config.errors import ConfigError
from gymq.config.loader import Config, load
from gymq.config.masking import digest_of, fingerprint, masked, record_instances, record_options
from gymq.protocol.instances import Instance

__all__ = [
    "Config",
    "ConfigError",
    "Instance",
    "digest_of",
    "fingerprint",
    "load",
    "masked",
    "record_instances",
    "record_options",
]

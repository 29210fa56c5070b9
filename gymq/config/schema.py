"""The part of the configuration format that is the same for all workers: instances and addresses."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gymq.authoring import in_plain_words
from gymq.config.errors import Keys

RUN_KEYS = frozenset(
    {
        "cache_dir",
        "config_paths",
        "default_host",
        "disallowed_ports",
        "dry_run",
        "error_on_almost_servers",
        "head_server",
        "port_range_high",
        "port_range_low",
        "results_dir",
        "skip_verification",
        "skip_verification_reward",
        "use_absolute_ip",
    }
)
"""Top-level keys that configure the run; none of them is an instance."""

Domain = Literal[
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
]
License = Literal[
    "Apache 2.0",
    "MIT",
    "GNU General Public License v3.0",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
]


class _Gitlab(BaseModel):
    dataset_name: str
    version: str
    artifact_fpath: str


class _HuggingFace(BaseModel):
    repo_id: str
    artifact_fpath: str | None = None


class _GitlabSource(_Gitlab):
    type: Literal["gitlab"]


class _HuggingFaceSource(_HuggingFace):
    type: Literal["huggingface"]


class _Rows(BaseModel):
    """The keys of all data sets."""

    name: str
    jsonl_fpath: str
    num_repeats: int = Field(default=1, ge=1)
    prompt_config: str | None = None
    prepare_script: str | None = None
    source: Annotated[_GitlabSource | _HuggingFaceSource, Field(discriminator="type")] | None = None
    gitlab_identifier: _Gitlab | None = None
    huggingface_identifier: _HuggingFace | None = None


class _Dataset(_Rows):
    """Rows for training, validation or a first look."""

    type: Literal["train", "validation", "example"]
    license: License | None = None

    @model_validator(mode="after")
    def _check(self) -> "_Dataset":
        if self.type != "example" and self.license is None:
            raise ValueError(f"a {self.type} data set needs a license, such as `license: Apache 2.0`")
        if self.source and (self.gitlab_identifier or self.huggingface_identifier):
            raise ValueError("source excludes gitlab_identifier and huggingface_identifier")
        return self


class _Benchmark(_Rows):
    """Rows that a script prepares."""

    type: Literal["benchmark"]
    prepare_script: str


class Implementation(BaseModel):
    """The keys that every implementation can have; its own options are up to the worker."""

    model_config = ConfigDict(extra="allow")

    entrypoint: str
    domain: Domain | None = None
    host: str | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    num_workers: int | None = Field(default=None, ge=1)
    datasets: list[Annotated[_Dataset | _Benchmark, Field(discriminator="type")]] | None = None
    # For catalogues only.
    description: Any = None
    value: Any = None
    verified: Any = None
    allowed_agents: Any = None


def problems(model: type[BaseModel], value: dict[str, Any]) -> list[tuple[Keys, str]]:
    """Validate a mapping.

    Returns:
        The path of each invalid key below the mapping, and the problem.
    """
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [(_location(found["loc"]), in_plain_words(found)) for found in error.errors(include_url=False)]
    return []


def _location(loc: tuple[str | int, ...]) -> Keys:
    """Drop the names of union members that pydantic puts into paths: `datasets, 0, train, source, gitlab, version`."""
    keys = list(loc)
    if keys[:1] == ["datasets"]:
        del keys[2:3]
        if keys[2:3] == ["source"]:
            del keys[3:4]
    return tuple(keys)

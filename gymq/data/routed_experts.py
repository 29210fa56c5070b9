"""Which experts of a mixture-of-experts model an engine routed each token to, for trainers that replay it."""

from __future__ import annotations

import base64
import importlib
import io
import reprlib
from typing import Any

NEMO_RL_FORM = "nrlre1"
NEMO_RL_TYPES = ("int8", "int16", "int32")
FORMS = f"a .npy array in base64, as from vLLM, or {NEMO_RL_FORM}:TYPE:TOKENSxLAYERSxK:BASE64, as from NeMo RL"


def read_experts(given: Any, num_tokens: int) -> Any:
    """Return the experts of the tokens of one model call, its prompt included.

    Those of the last token may be missing: only the next call reads that token.

    Args:
        given: nested lists, or text in one of `FORMS`.

    Returns:
        A NumPy array of integers of the shape [num_tokens or num_tokens - 1, layers, K], which may be written to.

    Raises:
        ValueError: there are too few, or they have another form.
    """
    np: Any = importlib.import_module("numpy")  # every trainer has it
    try:
        if not isinstance(given, str):
            experts = np.array(given, dtype=np.int32)
        elif given.startswith(f"{NEMO_RL_FORM}:"):
            experts = _of_nemo_rl(given, np)
        else:
            file = io.BytesIO(base64.b64decode(given, validate=True))
            experts = np.lib.format.read_array(file, allow_pickle=False)
    except Exception:  # .npy has a Python literal, and NumPy lets the errors of Python's parser through
        raise ValueError(f"routed_experts are {reprlib.repr(given)}, not {FORMS}") from None
    if experts.ndim != 3 or experts.dtype.kind not in "iu" or len(experts) < num_tokens - 1:
        what = f"{experts.dtype.name} of the shape {experts.shape}"
        raise ValueError(f"routed_experts are {what}, not integers of the shape [{num_tokens}, layers, K]")
    if experts.dtype.name == "uint16":  # which no trainer takes
        experts = experts.astype(np.int16 if experts.max(initial=0) < 1 << 15 else np.int32)
    return experts[:num_tokens]


def _of_nemo_rl(text: str, np: Any) -> Any:
    _, name, dimensions, data = text.split(":", 3)
    if name not in NEMO_RL_TYPES:
        raise ValueError(name)
    raw = bytearray(base64.b64decode(data, validate=True))
    return np.frombuffer(raw, dtype=name).reshape([int(size) for size in dimensions.split("x")])

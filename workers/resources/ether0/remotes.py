"""ether0's three models behind HTTP: solubility, what can be bought, and the product of a reaction.

The server is `ether0.remotes` of https://github.com/Future-House/ether0.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from gymq import ComponentFailed, FailureClass, RolloutError


class Remotes:
    """Asks the server. Use `start` and `stop` around it.

    Args:
        url: None if there is no server.
        token: sent as a bearer token.
        timeout_s: seconds for one answer; a cold server takes minutes.
    """

    def __init__(self, url: str | None, token: str | None, timeout_s: float) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    def require(self) -> None:
        """
        Raises:
            RolloutError: there is no server.
        """
        if not self._url:
            text = "the row needs ether0's prediction server, and the option remotes_url does not name one"
            raise RolloutError(FailureClass.COMPONENT_FAILED, text, retryable=False)

    async def solubility(self, smiles: str) -> float:
        """Return the logarithm of the solubility that is predicted.

        Raises:
            ComponentFailed: there is no prediction; so in the other methods.
        """
        return float(await self._ask("compute_solubility", {"smiles": smiles}, "mean", (int, float)))

    async def purchasable(self, smiles: list[str]) -> dict[str, bool]:
        """Return which molecules can be bought."""
        return dict(await self._ask("is_purchasable", {"smiles": smiles}, None, dict))

    async def product(self, reaction: str) -> str:
        """SMILES of the product that is predicted."""
        return str(await self._ask("translate", {"reaction": reaction}, "product", str))

    async def _ask(self, path: str, body: dict[str, Any], member: str | None, kind: Any) -> Any:
        assert self._session is not None, "start() comes first"
        try:
            async with self._session.post(f"{self._url}/{path}", json=body) as response:
                if response.status != 200:
                    raise ComponentFailed(f"ether0's {path} answered with status {response.status}")
                answer = await response.json()
        except TimeoutError:
            raise ComponentFailed(f"ether0's {path} did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ComponentFailed(f"ether0's {path} could not be asked: {type(error).__name__}") from None
        found = answer.get(member) if member and isinstance(answer, dict) else answer
        if not isinstance(found, kind) or (isinstance(answer, dict) and "error" in answer):
            raise ComponentFailed(f"ether0's {path} gave no prediction")
        return found

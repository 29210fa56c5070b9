"""A client of NeMo Gym, small but with its habits.

Instances are looked up at the head server, cookies go from each answer to the next request by hand, no request has a
time limit, and one that finds no worker is sent again after half a second.
"""

import asyncio
import json
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
from omegaconf import DictConfig, OmegaConf

Body = dict[str, Any]
RETRY_S = 0.5
KINDS = ("responses_api_agents", "responses_api_models", "resources_servers")


class GymClient:
    """Finds instances by name and posts to them."""

    def __init__(self, head_host: str, head_port: int) -> None:
        self._head = f"http://{head_host}:{head_port}"
        self.config: DictConfig = OmegaConf.create({})
        self.num_repeated = 0
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None, connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> "GymClient":
        """Read the configuration: a JSON text whose value is YAML."""
        async with self.session.get(f"{self._head}/global_config_dict_yaml") as answer:
            text = json.loads(await answer.read())
        assert isinstance(text, str)
        created = OmegaConf.create(text)
        assert isinstance(created, DictConfig)
        self.config = created
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    def url(self, name: str) -> str:
        """The address of an instance: the first kind and the first implementation below its name."""
        server = self.config[name]
        for _ in range(2):
            server = server[next(iter(server))]
        return f"http://{server.host}:{server.port}"

    def names(self, kind: str) -> list[str]:
        return [
            str(name)
            for name, value in self.config.items()
            if isinstance(value, DictConfig) and next(iter(value), None) == kind
        ]

    async def post(
        self, name: str, path: str, body: Any, cookies: SimpleCookie | None = None
    ) -> aiohttp.ClientResponse:
        sent: Mapping[str, str] = {key: morsel.value for key, morsel in (cookies or {}).items()}
        while True:
            try:
                return await self.session.post(self.url(name) + path, json=body, cookies=sent)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectorError):
                self.num_repeated += 1
                await asyncio.sleep(RETRY_S)


async def collect(client: GymClient, rows: list[Body]) -> list[tuple[Body, Body]]:
    """Rows to their agents, all at once; pairs of row and result in the order of completion.

    Raises:
        aiohttp.ClientResponseError: for the first row that failed.
    """

    async def one(row: Body) -> tuple[Body, Body]:
        answer = await client.post(row["agent_ref"]["name"], "/run", row)
        answer.raise_for_status()
        return row, await answer.json()

    return [await done for done in asyncio.as_completed([one(row) for row in rows])]


async def play(client: GymClient, model: str, resources: str, row: Body, max_steps: int = 8) -> Body:
    """What an agent of NeMo Gym does with a row: seed, model and tools in turn, verify. The verified row."""
    seeded = await client.post(resources, "/seed_session", row)
    seeded.raise_for_status()
    resources_cookies, model_cookies = seeded.cookies, SimpleCookie()
    params = row["responses_create_params"]
    if isinstance(params["input"], str):
        params = params | {"input": [{"role": "user", "content": params["input"]}]}
    made: list[Body] = []
    response: Body = {}
    for _ in range(max_steps):
        asked = params | {"input": params["input"] + made}
        answer = await client.post(model, "/v1/responses", asked, model_cookies)
        answer.raise_for_status()
        model_cookies = answer.cookies
        response = await answer.json()
        made += response["output"]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if not calls:
            break
        for call in calls:
            tool = await client.post(resources, f"/{call['name']}", json.loads(call["arguments"]), resources_cookies)
            # Whatever its status, the model reads what it says.
            resources_cookies = tool.cookies or resources_cookies
            output = (await tool.read()).decode()
            made.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})
    response["output"] = made
    verified = await client.post(resources, "/verify", row | {"response": response}, resources_cookies)
    verified.raise_for_status()
    result: Body = await verified.json()
    return result

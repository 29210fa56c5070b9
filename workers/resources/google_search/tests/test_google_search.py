"""What the recorded cases cannot say: the services over HTTP, keys that stay secret, private addresses, limits."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from gymq.workers.resources.google_search import pages
from gymq.workers.resources.google_search.worker import WebSearch, boxed_option

import gymq
from gymq.testing import Harness, prompt, reply

pytest.importorskip("trafilatura", reason='needs pip install "gymq[web-search]"')

KEY = "AIza-secret-key"
ROW = {**prompt("Which?"), "expected_answer": "C", "task_difficulty_qwen3_32b_avg_8": 0.5}
ARTICLE = "<html><body><nav>Menu</nav><article><p>{}</p></article></body></html>"
SENTENCE = "The tunnel below the mountain was opened in the summer of that year. "


@asynccontextmanager
async def serving(**routes):
    """A site on the loopback interface; a route is a handler, or what it answers."""

    def handler(answer):
        async def handle(request):
            return await answer(request) if callable(answer) else answer

        return handle

    app = web.Application()
    for name, answer in routes.items():
        app.router.add_get(f"/{name}", handler(answer))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def call(options, tool, arguments):
    given = {"google_api_key": KEY, "google_cx": "engine", "allow_private_addresses": True, "timeout_s": 60}
    async with Harness(WebSearch, given | options) as env:
        result = await (await env.session(ROW)).call(tool, arguments)
    assert KEY not in result.output
    return result


async def search(options, query="alps"):
    result = await call(options, "search", {"query": query})
    assert result.status == 200
    return json.loads(result.output)["search_results"]


async def browse(url, **options):
    result = await call(options, "browse", {"url": url})
    assert result.status == 200
    return json.loads(result.output)["page_content"]


async def google(request):
    """Google's interface: the key is checked first, then what is missing."""
    if request.query.get("key") != KEY:
        error = {"error": {"code": 400, "message": f"API key not valid: {request.query.get('key')}"}}
        return web.json_response(error, status=400)
    if request.query.get("q") == "too often":
        error = {"error": {"code": 429, "message": f"Quota exceeded for {KEY}", "status": "RESOURCE_EXHAUSTED"}}
        return web.json_response(error, status=429)
    item = {"title": "Zürich", "link": "http://a.example/1", "snippet": request.query["q"]}
    return web.json_response({"kind": "customsearch#search", "queries": dict(request.query), "items": [item]})


async def test_a_query_is_sent_with_key_and_engine():
    async with serving(v1=google) as url:
        options = {"search_url": f"{url}/v1", "google_api_key": KEY}
        async with Harness(WebSearch, {"google_cx": "engine"} | options) as env:
            result = await (await env.session(ROW)).call("search", {"query": "a & b=c #ä"})
    answer = json.loads(json.loads(result.output)["search_results"])
    assert answer["queries"] == {"key": KEY, "cx": "engine", "q": "a & b=c #ä"}
    assert answer["items"][0]["title"] == "Zürich"
    assert "Z\\u00fcrich" in json.loads(result.output)["search_results"]


async def test_errors_of_the_service_are_told_without_the_key():
    async def redirect(request):
        raise web.HTTPFound(f"/v1?{request.query_string}")

    async def slow(_request):
        await asyncio.sleep(60)

    no_json = web.Response(text="<html>")
    async with serving(v1=google, redirect=redirect, slow=slow, no_json=no_json) as url:
        assert await search({"search_url": f"{url}/v1"}, "too often") == (
            "Error: Unexpected error - the search service answered with status 429 Too Many Requests"
        )
        wrong_key = await search({"search_url": f"{url}/v1", "google_api_key": "another-secret"})
        assert "400" in wrong_key
        assert "another-secret" not in wrong_key
        assert "not JSON" in await search({"search_url": f"{url}/no_json"})
        assert "not JSON" in await search({"search_url": f"{url}/redirect"})
        assert "in time" in await search({"search_url": f"{url}/slow", "timeout_s": 0.2})
    assert "could not be reached" in await search({"search_url": f"{url}/v1"})
    assert "no API key" in await search({"search_url": f"{url}/v1", "google_api_key": ""})


def test_the_key_is_not_shown_with_the_options():
    author = WebSearch({"google_api_key": KEY, "google_cx": "engine"})
    assert KEY not in repr(author.options)
    with pytest.raises(gymq.OptionsError) as refused:
        WebSearch({"google_api_key": KEY, "google_cx": None})
    assert KEY not in str(refused.value)


async def test_a_page_becomes_its_main_text():
    page = web.Response(text=ARTICLE.format(SENTENCE * 5), content_type="text/html")
    async with serving(page=page) as url:
        text = await browse(f"{url}/page")
    assert text.startswith("The tunnel below the mountain")
    assert "Menu" not in text


async def test_a_long_page_is_cut_in_the_middle():
    page = web.Response(text=ARTICLE.format(SENTENCE * 1000 + "The end."), content_type="text/html")
    async with serving(page=page) as url:
        text = await browse(f"{url}/page")
    assert len(text) == 10_003
    assert text[5000:5003] == "..."
    assert text.endswith("The end.")


async def test_what_is_no_page_is_told():
    routes = {
        "empty": web.Response(text=""),
        "missing": web.Response(text="<html>gone</html>", status=404),
        "blank": web.Response(text="<html><body></body></html>", content_type="text/html"),
        "image": web.Response(body=b"\x89PNG\r\n\x1a\n" + bytes(100)),
    }
    async with serving(**routes) as url:
        for name, expected in [
            ("empty", "No HTML"),
            ("missing", "No HTML"),
            ("blank", "No text"),
            ("image", "No text"),
        ]:
            assert await browse(f"{url}/{name}") == f"{expected} found"
    assert (await browse(f"{url}/empty")).startswith("Error: Unexpected error = ")


async def test_size_and_redirects_are_limited(monkeypatch):
    async def around(_request):
        raise web.HTTPFound("/around")

    async def elsewhere(_request):
        raise web.HTTPFound("file:///etc/passwd")

    monkeypatch.setattr(pages, "MAX_BYTES", 1000)
    page = web.Response(text=ARTICLE.format(SENTENCE * 100), content_type="text/html")
    async with serving(page=page, around=around, elsewhere=elsewhere) as url:
        assert "more than 1000 bytes" in await browse(f"{url}/page")
        assert "redirects" in await browse(f"{url}/around")
        assert "only http" in await browse(f"{url}/elsewhere")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://LOCALHOST.:{port}/",
        "http://a.localhost:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://0.0.0.0:{port}/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://[fd00::1]/",
        "http://[fe80::1%25lo]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[::127.0.0.1]/",
    ],
)
async def test_private_addresses_cannot_be_read(url, monkeypatch):
    async def refuse(*_args):
        pytest.fail("the address was asked")

    monkeypatch.setattr(pages.Pages, "fetch", refuse)
    assert await browse(url.format(port=80), allow_private_addresses=False) == (
        "Error: Unexpected error = private addresses cannot be read"
    )


async def test_an_address_that_would_take_long_to_read_is_refused():
    url = "http://a" + "\u0301" * 200_000 + "\u0316" * 200_000 + ".example/"
    assert await browse(url) == "Error: Unexpected error = an address has at most 4000 characters"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::808:808", False),
        ("64:ff9b::808:808", True),
        ("2002:7f00:1::", False),
        ("2002:a00:1::1", False),
        ("2002:808:808::1", True),
        ("::127.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("::", False),
        ("::1", False),
        ("2606:4700::1111", True),
    ],
)
def test_an_ipv4_address_inside_an_ipv6_address_decides(address, public):
    assert pages.is_public(address) is public


@pytest.mark.parametrize("host", ["127.1", "0177.0.0.1", "0x7f000001", "2130706433", "inner.example"])
async def test_names_that_lead_to_private_addresses_cannot_be_read(host, monkeypatch):
    def resolve(asked, port, *_args, **_kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    page = web.Response(text=ARTICLE.format(SENTENCE * 5), content_type="text/html")
    async with serving(page=page) as url:
        port = url.rpartition(":")[2]
        text = await browse(f"http://{host}:{port}/page", allow_private_addresses=False)
    assert text == "Error: Unexpected error = private addresses cannot be read"


async def test_a_redirect_to_a_private_address_is_not_followed(monkeypatch):
    asked = []

    async def fetch(self, url):
        asked.append(url)
        return 302, "http://127.0.0.1/inner", b""

    monkeypatch.setattr(pages.Pages, "fetch", fetch)
    text = await browse("http://93.184.215.14/", allow_private_addresses=False)
    assert text == "Error: Unexpected error = private addresses cannot be read"
    assert asked == ["http://93.184.215.14/"]


@pytest.mark.parametrize(
    "url", ["", "a.example", "ftp://a.example/", "file:///etc/passwd", "http://", "http://[", "x" * 9]
)
async def test_only_addresses_of_the_web_can_be_read(url):
    assert (await browse(url)).startswith("Error: Unexpected error = ")


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("search", {}, 422),
        ("search", {"query": 5}, 422),
        ("browse", {"url": None}, 422),
        ("Search", {"query": "x"}, 404),
    ],
)
async def test_calls_that_do_not_fit_are_refused(tool, arguments, status):
    assert (await call({}, tool, arguments)).status == status


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("\\boxed{C} or \\boxed{D}", "C"),
        ("\\boxed{\\text{C}}", "\\text{C"),
        ("\\boxed{}", ""),
        ("\\boxed{ C }", " C "),
        ("\\boxed{C\n} \\boxed{D}", "D"),
        ("} \\boxed{C", None),
        ("C", None),
        ("\\boxed{" * 300_000, None),
    ],
    ids=range(8),
)
def test_the_option_is_read_out_of_the_first_box(text, option):
    assert boxed_option(text) == option


@pytest.mark.parametrize(
    "members", [{"expected_answer": 3}, {"expected_answer": None}, {"task_difficulty_qwen3_32b_avg_8": "x"}]
)
async def test_a_row_that_does_not_fit_is_refused(members):
    async with Harness(WebSearch, {"google_api_key": KEY, "google_cx": "engine"}) as env:
        with pytest.raises(gymq.InvalidTask, match=next(iter(members))):
            await env.verify(ROW | members, reply("\\boxed{C}"))

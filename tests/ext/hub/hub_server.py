"""A server that speaks the part of the Hugging Face Hub's API that downloads of data sets use."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".parquet", ".arrow", ".gz", ".zst")  # kept as the Hub keeps large files: with a SHA-256


@dataclass
class Repository:
    """Files by revision; the last one pushed is `main`."""

    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    is_gated: bool = False

    def push(self, files: dict[str, bytes], revision: str = "main") -> str:
        """Make a commit and return its id."""
        commit = hashlib.sha1(repr((revision, sorted(files.items()))).encode()).hexdigest()
        self.revisions[commit] = self.revisions[revision] = files
        self.revisions[f"{revision}@"] = {"": commit.encode()}
        return commit

    def commit(self, revision: str) -> str | None:
        named = self.revisions.get(f"{revision}@")
        return named[""].decode() if named else (revision if revision in self.revisions else None)


@dataclass
class Hub:
    """What the server has, what it was asked for, and how it fails."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    token: str = "hf_letmein"
    breaks_off_after: int | None = None  # bytes of the next large file
    damages: bool = False
    is_down: bool = False

    def add(self, name: str, files: dict[str, bytes], **options: Any) -> Repository:
        repository = self.repositories[name] = Repository(**options)
        repository.push(files)
        return repository

    def downloads(self, ending: str = "") -> list[tuple[str, str | None]]:
        """The paths and ranges of all downloads of files with this ending."""
        return [(path, span) for method, path, span in self.requests if method == "GET" and path.endswith(ending)]


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        if self.hub.is_down:
            return self._send(503, b"")
        if path.startswith("/api/datasets/"):
            return self._api(path.removeprefix("/api/datasets/"), body)
        if path.startswith("/datasets/") and "/resolve/" in path:
            return self._file(path.removeprefix("/datasets/"))
        return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def _found(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._send(401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return None
        if repository.is_gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._send(401, b'{"error": "gated"}', {"X-Error-Code": "GatedRepo"})
            return None
        commit = repository.commit(revision)
        if commit is None:
            self._send(404, b'{"error": "revision"}', {"X-Error-Code": "RevisionNotFound"})
            return None
        return commit, repository.revisions[commit]

    def _api(self, path: str, body: bytes) -> None:
        parts = path.split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        revision = "/".join(rest[1:]) if rest[:1] in (["revision"], ["paths-info"]) else "main"
        if rest[:1] == ["tree"]:
            revision = rest[1]
        found = self._found(name, revision)
        if found is None:
            return None
        commit, files = found
        if rest[:1] == ["paths-info"]:
            asked = json.loads(body or b"{}").get("paths", [])
            return self._send_json([_entry(one, files[one]) for one in asked if one in files])
        if rest[:1] == ["tree"]:
            folder = "/".join(rest[2:])
            inside = [one for one in sorted(files) if one.startswith(folder)]
            return self._send_json([_entry(one, files[one]) for one in inside])
        siblings = [_sibling(one, files[one]) for one in sorted(files)]
        return self._send_json({"id": name, "sha": commit, "private": False, "siblings": siblings, "tags": []})

    def _file(self, path: str) -> None:
        name, _, rest = path.partition("/resolve/")
        revision, _, file = rest.partition("/")
        found = self._found(name, revision)
        if found is None:
            return None
        commit, files = found
        if file not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        content = files[file]
        etag = hashlib.sha256(content).hexdigest() if file.endswith(LARGE) else git_sha1(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        start = 0
        status = 200
        if given := self.headers.get("Range"):
            start = int(given.removeprefix("bytes=").partition("-")[0])
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if self.hub.damages and self.command == "GET" and file.endswith(LARGE):
            content = content[:-1] + bytes([content[-1] ^ 1])
        return self._send(status, content[start:], headers, breaks=file.endswith(LARGE))

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, *, breaks: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if breaks and self.hub.breaks_off_after is not None:
            body, self.hub.breaks_off_after = body[: self.hub.breaks_off_after], None
            self.close_connection = True
        self.wfile.write(body)


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    large = {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
    common = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
    return common | (large if path.endswith(LARGE) else {})


def _entry(path: str, content: bytes) -> dict[str, Any]:
    large = {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
    common = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
    return common | (large if path.endswith(LARGE) else {})

"""A Hub on this machine: a server that speaks as much of its HTTP as `huggingface_hub` asks for.

A repository is a folder of files and its commits. `Hub.requests` lists what was asked, and some
fields of a repository let it be private, gated, cut off or wrong.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin", ".model", ".onnx")
"""Endings of files that the Hub keeps as large ones, under their sha256."""


@dataclass
class Repository:
    """A model of the server."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of each commit by the commit's hash."""
    refs: dict[str, str] = field(default_factory=dict)
    """The commit of each branch and tag."""
    token: str | None = None
    """The token that a client must send to see that it exists; None for everyone."""
    gated: bool = False
    """True where nobody has accepted the terms."""
    cut: dict[str, int] = field(default_factory=dict)
    """Files whose next download breaks off after so many bytes."""
    wrong: set[str] = field(default_factory=set)
    """Files that arrive with one bit changed."""
    private: bool = False

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit of files to a branch; its hash."""
        text = repr((branch, len(self.commits), sorted(files))).encode()
        name = hashlib.sha1(text).hexdigest()
        self.commits[name] = dict(files)
        self.refs[branch] = name
        return name

    def find(self, revision: str) -> str | None:
        """The commit of a revision."""
        return revision if revision in self.commits else self.refs.get(revision)


@dataclass
class Request:
    """A request that the server got."""

    method: str
    path: str
    headers: Mapping[str, str]
    """The headers by their names in lower case."""

    @property
    def file(self) -> str | None:
        """The file that is downloaded."""
        match = re.fullmatch(r"/(?!api/).+/resolve/[^/]+/(.+)", self.path)
        return match[1] if match and self.method == "GET" else None


@dataclass
class Hub:
    """The server."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    """Large files that were sent, by their sha256."""
    token: str = "hf_secret"
    """The token that may write."""

    def add(self, name: str, folder: Path | Mapping[str, bytes], **fields: Any) -> Repository:
        """A repository with one commit of the files of a folder."""
        files = read_files(folder) if isinstance(folder, Path) else folder
        repository = self.repositories[name] = Repository(**fields)
        repository.commit(files)
        return repository

    def downloads(self) -> list[str]:
        """The names of the files that were downloaded, in this order."""
        return [request.file for request in self.requests if request.file]

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """The variables of an environment that names this server, with the cache in a folder."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "",
            "HF_TOKEN": "",
            "HF_HUB_DISABLE_XET": "1",
            **more,
        }


def read_files(folder: Path) -> dict[str, bytes]:
    """The files below a folder by their paths."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def cache_of(home: Path, name: str) -> Path:
    """The folder of a model in the cache."""
    return home / "hub" / f"models--{name.replace('/', '--')}"


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a server until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _describe(path: str, content: bytes) -> dict[str, Any]:
    """A file as the API lists it."""
    described = {"rfilename": path, "size": len(content), "blobId": _git_digest(content)}
    if path.endswith(LARGE):
        described["lfs"] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "pointerSize": 134,
        }
    return described


def _git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def handle_one_request(self) -> None:
        """Answer, or let go of a client that has gone."""
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        self._route()

    do_HEAD = do_POST = do_PUT = do_GET

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.hub.requests.append(Request(self.command, path, headers))
        body = self._read_body()
        if match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/tree/([^/]+)", path):
            self._list_tree(match[1], match[2])
        elif match := re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)(?:/revision/(.+))?", path):
            self._list(match[1], match[2] or "main")
        elif match := re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+(?:/pr/\d+)?)/(.+)", path):
            self._resolve(match[1], match[2], match[3])
        elif path.startswith(("/api/", "/upload/")) or ".git/info/lfs" in path:
            self._write(path, body)
        else:
            self._answer(404, {"error": "no such route"})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _find(self, name: str, revision: str) -> tuple[Repository | None, str]:
        """Find a repository and a commit, or answer that there is none."""
        repository = self.hub.repositories.get(name)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository is None or repository.token not in (None, bearer):
            self._refuse(401, "RepoNotFound", "Repository not found")
            return None, ""
        commit = repository.find(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None, ""
        return repository, commit

    def _list(self, name: str, revision: str) -> None:
        repository, commit = self._find(name, revision)
        if repository is None:
            return
        files = repository.commits[commit]
        siblings = [_describe(path, content) for path, content in files.items()]
        gated = "manual" if repository.gated else False
        self._answer(
            200,
            {
                "id": name,
                "modelId": name,
                "sha": commit,
                "gated": gated,
                "private": repository.private,
                "siblings": siblings,
            },
        )

    def _list_tree(self, name: str, revision: str) -> None:
        repository, commit = self._find(name, revision)
        if repository is None:
            return
        entries = [
            {"type": "file", "path": path, "size": len(content), "oid": _git_digest(content)}
            for path, content in repository.commits[commit].items()
        ]
        self._answer(200, entries)

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository, commit = self._find(name, revision)
        if repository is None:
            return
        if repository.gated:
            self._refuse(403, "GatedRepo", f"Access to model {name} is restricted")
            return
        content = repository.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit}
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found", **headers)
            return
        described = _describe(path, content)
        digest = described["lfs"]["sha256"] if "lfs" in described else described["blobId"]
        headers |= {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if path in repository.wrong:
            content = bytes([content[0] ^ 1]) + content[1:]
        start, status = 0, 200
        if span := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start, status = int(span[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(rest))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if (most := repository.cut.pop(path, None)) is not None:
            self.wfile.write(rest[:most])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(rest)

    def _write(self, path: str, body: bytes) -> None:
        """Answer the requests of `push`."""
        hub = self.hub
        if self.headers.get("Authorization") != f"Bearer {hub.token}" and "/upload/" not in path:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif path == "/api/whoami-v2":
            self._answer(200, {"type": "user", "name": "me", "orgs": []})
        elif path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            if name in hub.repositories:
                url = f"{hub.url}/{name}"
                self._answer(409, {"error": "You already created this repo", "url": url})
                return
            repository = hub.add(name, {".gitattributes": b""})
            # Versions of the library say it in one of two ways.
            visibility = wanted.get("visibility", "")
            repository.private = visibility == "private" or bool(wanted.get("private"))
            self._answer(200, {"url": f"{hub.url}/{name}", "id": name})
        elif path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            self._answer(200, {"files": files})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": file["oid"],
                    "size": file["size"],
                    "actions": {"upload": {"href": f"{hub.url}/upload/{file['oid']}"}},
                }
                for file in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif path.startswith("/upload/"):
            hub.uploads[path.removeprefix("/upload/")] = body
            self._answer(200, {})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/(.+)", path):
            self._commit(match[1], match[2], body)
        else:
            self._answer(404, {"error": f"no such route: {path}"})

    def _commit(self, name: str, branch: str, body: bytes) -> None:
        repository = self.hub.repositories[name]
        files = dict(repository.commits[repository.refs[branch]])
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            elif entry["key"] == "deletedFile":
                files.pop(value["path"], None)
            elif entry["key"] == "header":
                self.hub.requests.append(Request("COMMIT", value["summary"], {}))
        commit = repository.commit(files, branch)
        url = f"{self.hub.url}/{name}/commit/{commit}"
        self._answer(200, {"success": True, "commitOid": commit, "commitUrl": url})

    def _refuse(self, status: int, code: str, message: str, **headers: str) -> None:
        self._answer(
            status,
            {"error": message},
            **({"X-Error-Code": code} if code else {}),
            **{"X-Error-Message": message, **headers},
        )

    def _answer(self, status: int, content: object, **headers: str) -> None:
        body = b"" if self.command == "HEAD" else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

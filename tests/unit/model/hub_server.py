"""A stand-in for the Hugging Face hub on 127.0.0.1: the few routes that uploads and downloads of models use."""

import base64
import hashlib
import json
import re
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

WRITER, READER = "hf_writer", "hf_reader"  # tokens


class Hub:
    """What the server holds, and how it should misbehave."""

    def __init__(self):
        self.repos = {}  # name -> {"private": bool, "commits": [(oid, {path: bytes})]}
        self.objects = {}  # LFS: sha256 -> bytes
        self.asked = []  # (method, path, token)
        self.cut = None  # a pattern of paths whose connection is cut in the middle
        self.answer = {}  # path pattern -> status
        self.url = ""

    def commit(self, repo, files, deleted=()):
        commits = self.repos[repo]["commits"]
        tree = {} if not commits else dict(commits[-1][1])
        for path in deleted:
            tree.pop(path, None)
        tree |= files
        oid = hashlib.sha1(json.dumps([len(commits), sorted(tree)]).encode()).hexdigest()
        commits.append((oid, tree))
        return oid

    def tree(self, repo, revision):
        commits = self.repos[repo]["commits"]
        if revision == "main":
            return commits[-1] if commits else ("0" * 40, {})
        return next(((oid, tree) for oid, tree in commits if oid == revision), (None, None))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self):
        return self.server.hub

    def log_message(self, *values):
        pass

    def reply(self, status, document=None, headers=(), data=None):
        data = json.dumps(document or {}).encode() if data is None else data
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status, code="", message="refused"):
        self.reply(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})

    def handle_any(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else self.chunks()
        path = unquote(urlsplit(self.path).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.hub.asked.append((self.command, path, token))
        if self.hub.cut is not None and re.search(self.hub.cut, path) and self.command != "HEAD":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        for pattern, status in self.hub.answer.items():
            if re.search(pattern, path):
                return self.refuse(status)
        if token not in ("", WRITER, READER):
            return self.refuse(401, message="Invalid credentials in Authorization header")
        for pattern, route in ROUTES:
            if match := re.fullmatch(pattern, path):
                return route(self, token, body, **match.groupdict())
        return self.refuse(404, "EntryNotFound")

    def chunks(self):
        data = b""
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return data

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def may(self, repo, token, write=False):
        known = self.hub.repos.get(repo)
        if known is None or (known["private"] and not token):
            self.refuse(404 if token else 401, "RepoNotFound")
        elif write and token != WRITER:
            self.refuse(403, message="you need a token with the right to write")
        else:
            return True
        return False

    def create(self, token, body):
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        if token != WRITER:
            return self.refuse(403 if token else 401, message="you need a token with the right to write")
        if name in self.hub.repos:
            return self.reply(409, {"error": "it exists", "url": f"{self.hub.url}/{name}"})
        private = bool(asked.get("private") or asked.get("visibility") == "private")
        self.hub.repos[name] = {"private": private, "commits": []}
        return self.reply(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def validate(self, token, body):
        return self.reply(200, {"errors": [], "warnings": []})

    def preupload(self, token, body, repo, revision):
        if not self.may(repo, token, write=True):
            return None
        modes = [
            {"path": each["path"], "shouldIgnore": False,
             "uploadMode": "lfs" if each["path"].endswith((".safetensors", ".npy")) else "regular"}
            for each in json.loads(body)["files"]
        ]  # fmt: skip
        return self.reply(200, {"files": modes})

    def batch(self, token, body, repo):
        if not self.may(repo, token, write=True):
            return None
        objects = [{"oid": each["oid"], "size": each["size"]} for each in json.loads(body)["objects"]]
        for each in objects:
            if each["oid"] not in self.hub.objects:
                each["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{each['oid']}"}}
        return self.reply(
            200, {"transfer": "basic", "objects": objects}, {"Content-Type": "application/vnd.git-lfs+json"}
        )

    def put(self, token, body, oid):
        if hashlib.sha256(body).hexdigest() != oid:
            return self.refuse(400)
        self.hub.objects[oid] = body
        return self.reply(200)

    def take_commit(self, token, body, repo, revision):
        if not self.may(repo, token, write=True):
            return None
        files, deleted = {}, []
        for line in filter(None, body.splitlines()):
            part = json.loads(line)
            key, value = part["key"], part["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif key == "deletedFile":
                deleted.append(value["path"])
        oid = self.hub.commit(repo, files, deleted)
        where = {"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid, "success": True}
        return self.reply(200, where)

    def info(self, token, body, repo, revision="main"):
        if not self.may(repo, token):
            return None
        oid, tree = self.hub.tree(repo, revision)
        if tree is None:
            return self.refuse(404, "RevisionNotFound")
        return self.reply(200, {"id": repo, "sha": oid, "siblings": [{"rfilename": path} for path in tree]})

    def list_tree(self, token, body, repo, revision):
        if not self.may(repo, token):
            return None
        _, tree = self.hub.tree(repo, revision)
        rows = [{"type": "file", "path": path, "size": len(data), "oid": "0" * 40} for path, data in tree.items()]
        return self.reply(200, None, data=json.dumps(rows).encode())

    def resolve(self, token, body, repo, revision, path):
        if not self.may(repo, token):
            return None
        oid, tree = self.hub.tree(repo, revision)
        if tree is None:
            return self.refuse(404, "RevisionNotFound")
        if path not in tree:
            return self.reply(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": oid})
        data = tree[path]
        etag = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": oid}
        return self.reply(200, None, etag, data=data)


REPO = r"(?P<repo>[^/]+/[^/]+)"
ROUTES = [
    (r"/api/repos/create", Handler.create),
    (r"/api/validate-yaml", Handler.validate),
    (rf"/api/models/{REPO}/preupload/(?P<revision>[^/]+)", Handler.preupload),
    (rf"/api/models/{REPO}/commit/(?P<revision>[^/]+)", Handler.take_commit),
    (rf"/api/models/{REPO}/revision/(?P<revision>[^/]+)", Handler.info),
    (rf"/api/models/{REPO}/tree/(?P<revision>[^/]+)", Handler.list_tree),
    (rf"/api/models/{REPO}", Handler.info),
    (rf"/{REPO}.git/info/lfs/objects/batch", Handler.batch),
    (r"/lfs/(?P<oid>[0-9a-f]+)", Handler.put),
    (rf"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
]


@contextmanager
def running():
    """Serve until the block ends; give the hub."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.hub, server.daemon_threads = hub, True
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()

"""A store of S3's kind on loopback that checks signatures, and that can be told to misbehave."""
import email.utils
import hashlib
import hmac
import html
import http.server
import pathlib
import socketserver
import threading
import time
import urllib.parse

KEY, SECRET, REGION = "TESTKEY", "secret/of+tests", "eu-test-1"


def is_signed(method, target, headers, body):
    """Whether the request has the signature of the key, by the rules of AWS Signature Version 4."""
    path, _, query = target.partition("?")
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(",")) if rest else {}
    if scheme != "AWS4-HMAC-SHA256" or not {"Credential", "SignedHeaders", "Signature"} <= parts.keys():
        return False
    key, day, region, service, end = parts["Credential"].split("/")
    names = parts["SignedHeaders"].split(";")
    if key != KEY or "host" not in names or "x-amz-date" not in names:
        return False
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    query = "&".join(f"{urllib.parse.quote(name, safe='-_.~')}={urllib.parse.quote(value, safe='-_.~')}"
                     for name, value in pairs)
    request = "\n".join([method, urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~"), query, lines,
                         parts["SignedHeaders"], headers["x-amz-content-sha256"]])
    if headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
        return False
    scope = "/".join([day, region, service, end])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    secret = f"AWS4{SECRET}".encode()
    for part in (day, region, service, end):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(hmac.new(secret, to_sign.encode(), hashlib.sha256).hexdigest(), parts["Signature"])


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class StoreServer:
    """Serves the files of a folder as the bucket `data`. `fault(number)` decides what happens to a request: None, or one
    of "503", "close", "half", "slow"."""

    def __init__(self, folder, fault=lambda number: None, keys=True, port=0):
        self.folder, self.fault, self.keys = pathlib.Path(folder), fault, keys
        self.lock, self.requests, self.bytes_sent, self.tag = threading.RLock(), 0, 0, "1"
        self.start(port)

    def start(self, port):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each body waits 40 ms for the answer to its headers

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

            do_PUT = do_DELETE = do_GET

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION}

    def answer(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(int(headers.get("content-length", 0)))
        with self.lock:
            self.requests += 1
            number = self.requests
        fault = self.fault(number)
        if fault == "503":
            return self.send(request, 503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if fault == "close":
            request.close_connection = True
            return None
        if self.keys and not is_signed(request.command, request.path, headers, body):
            return self.send(request, 403, {}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        path, _, query = request.path.partition("?")
        name = urllib.parse.unquote(path).removeprefix("/data/")
        with self.lock:
            answer = self.answer_to(request.command, headers, body, name, dict(urllib.parse.parse_qsl(query)))
        return self.send(request, *answer, fault)

    def tag_of(self, path):
        return f'"{self.tag}-{hashlib.md5(path.read_bytes()).hexdigest()}"'

    def answer_to(self, method, headers, body, name, query):
        """Status, headers and body."""
        if "list-type" in query:
            return (200, {}, self.listing(query["prefix"]))
        path = self.folder / name
        tag = self.tag_of(path) if path.is_file() else None
        if method == "PUT":
            is_refused = "if-none-match" in headers and tag or headers.get("if-match", tag) != tag
            if is_refused:
                return (412, {}, b"")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            return (200, {"ETag": self.tag_of(path)}, b"")
        if method == "DELETE":
            path.unlink(missing_ok=True)
            return (204, {}, b"")
        if tag is None:
            return (404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
        content = path.read_bytes()
        if headers.get("if-match", tag) != tag:
            return (412, {}, b"")
        fields = {"ETag": tag, "Last-Modified": email.utils.formatdate(path.stat().st_mtime, usegmt=True)}
        if "range" not in headers:
            return (200, fields, content)
        first, last = (int(number) for number in headers["range"].removeprefix("bytes=").split("-"))
        if first >= len(content):
            return (416, {"Content-Range": f"bytes */{len(content)}", **fields}, b"")
        part = content[first:last + 1]
        fields["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
        return (206, fields, part)

    def listing(self, prefix):
        names = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())
        items = "".join(f"<Contents><Key>{urllib.parse.quote(name)}</Key>"
                        f"<ETag>{html.escape(self.tag_of(self.folder / name))}</ETag>"
                        f"<Size>{(self.folder / name).stat().st_size}</Size></Contents>"
                        for name in names if name.startswith(prefix))
        return f"<ListBucketResult>{items}</ListBucketResult>".encode()

    def send(self, request, status, headers, body, fault=None):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if fault == "half":
            body, request.close_connection = body[:len(body) // 2], True
        try:
            if fault == "slow":
                for at in range(0, len(body), 2048):
                    request.wfile.write(body[at:at + 2048])
                    time.sleep(0.01)
            else:
                request.wfile.write(body)
        except OSError:
            pass  # the reader went away
        self.bytes_sent += len(body)

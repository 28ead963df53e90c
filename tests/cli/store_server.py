"""A store of S3's kind on loopback that checks signatures, and that can be told to misbehave."""
import hashlib
import hmac
import http.server
import pathlib
import socketserver
import threading
import time
import urllib.parse

KEY, SECRET, REGION = "TESTKEY", "secret/of+tests", "eu-test-1"


def is_signed(method, path, headers):
    """Whether the request has the signature of the key, by the rules of AWS Signature Version 4."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(",")) if rest else {}
    if scheme != "AWS4-HMAC-SHA256" or not {"Credential", "SignedHeaders", "Signature"} <= parts.keys():
        return False
    key, day, region, service, end = parts["Credential"].split("/")
    names = parts["SignedHeaders"].split(";")
    if key != KEY or "host" not in names or "x-amz-date" not in names:
        return False
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    request = "\n".join([method, urllib.parse.quote(urllib.parse.unquote(path)), "", lines, parts["SignedHeaders"],
                         headers["x-amz-content-sha256"]])
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
        self.lock, self.requests, self.bytes_sent, self.tag = threading.Lock(), 0, 0, "1"
        self.start(port)

    def start(self, port):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

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
        with self.lock:
            self.requests += 1
            number = self.requests
        fault = self.fault(number)
        if fault == "503":
            return self.send(request, 503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if fault == "close":
            request.close_connection = True
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        if self.keys and not is_signed("GET", request.path, headers):
            return self.send(request, 403, {}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        name = urllib.parse.unquote(request.path).removeprefix("/data/")
        path = self.folder / name
        if not path.is_file():
            return self.send(request, 404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
        content, tag = path.read_bytes(), f'"{self.tag}-{path.stat().st_size}"'
        if headers.get("if-match", tag) != tag:
            return self.send(request, 412, {}, b"")
        first, last = (int(number) for number in headers["range"].removeprefix("bytes=").split("-"))
        if first >= len(content):
            return self.send(request, 416, {"Content-Range": f"bytes */{len(content)}", "ETag": tag}, b"")
        part = content[first:last + 1]
        fields = {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}", "ETag": tag}
        return self.send(request, 206, fields, part, fault)

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
        with self.lock:
            self.bytes_sent += len(body)

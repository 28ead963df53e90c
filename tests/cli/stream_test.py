"""Completions that come as they grow: events over HTTP, beside the answers that come whole."""
import http.client
import json
import os
import re
import signal
import socket
import threading
import unittest

from program import TIMEOUT, ProgramTest, rank_of

EXPERTS = ["--model.family=mixtral", "--model.experts=4", "--model.experts_per_token=2"]
LAYOUTS = ([], ["--ranks", 2, "--parallel.tensor=2"], ["--ranks", 2, "--parallel.pipeline=2"], ["--ranks", 2],
           ["--ranks", 4, "--parallel.tensor=2", "--parallel.data=2", "--threads=1"])
ENDLESS = 1_000_000  # tokens


class Streams(ProgramTest):
    def train(self, *keys):
        self.succeed("train", "tiny.toml", "--train.steps=20", "--train.precision=fp64", "--train.evaluate_interval=0", *keys)

    def serve(self, *options):
        process = self.start("serve", "run", "--port", 0, *options)
        lines = [process.stdout.readline() for _ in range(4)]
        self.port = int(re.search(r"^at      http://127\.0\.0\.1:(\d+)/v1/completions$", lines[1]).group(1))
        self.token = lines[2].split()[1]
        return process

    def ask(self, request, path="/v1/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(request), {"Authorization": f"Bearer {self.token}"})
        return connection.getresponse()

    def whole(self, **request):
        response = self.ask(request)
        answer = json.loads(response.read())
        self.assertEqual(response.status, 200, answer)
        self.assertIsNotNone(response.getheader("Content-Length"))
        return answer

    def events(self, response):
        """The chunks of a stream, as they come."""
        self.assertEqual(response.status, 200)
        self.assertEqual(response.getheader("Content-Type"), "text/event-stream")
        self.assertEqual(response.getheader("Transfer-Encoding"), "chunked")
        while (line := response.readline().decode()) != "data: [DONE]\n":
            self.assertTrue(line.startswith("data: {"), line)
            self.assertEqual(response.readline(), b"\n")
            yield json.loads(line[len("data: "):])
        self.assertEqual(response.read(), b"\n")

    def streamed(self, **request):
        """The texts and ends of a stream by the index of their prompts, and its events."""
        events = list(self.events(self.ask({**request, "stream": True})))
        texts, ends = {}, {}
        for event in events:
            self.assertEqual((event["object"], event["id"]), ("text_completion", events[0]["id"]))
            for choice in event["choices"]:
                self.assertNotIn(choice["index"], ends)  # nothing comes behind the end
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                if choice["finish_reason"]:
                    ends[choice["index"]] = choice["finish_reason"]
        return texts, ends, events

    def compare(self, **request):
        whole = self.whole(**request)
        texts, ends, events = self.streamed(**request, stream_options={"include_usage": True})
        self.assertEqual((texts, ends), ({choice["index"]: choice["text"] for choice in whole["choices"]},
                                         {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}))
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]), ([], whole["usage"]))
        self.assertTrue(all(event["usage"] is None for event in events[:-1]))
        return whole, events

    def compare_all(self):
        answers = []
        prompts = ["def ", "\u00e9", "return x"]
        for request in ({"prompt": prompts, "max_tokens": 12, "seed": 5, "temperature": 1.5},
                        {"prompt": prompts, "max_tokens": 40, "temperature": 0, "echo": True},
                        {"prompt": [prompts[0]] * 20, "max_tokens": 3, "seed": 1}, {"prompt": "a", "max_tokens": 0}):
            whole, events = self.compare(**request)
            answers.append([choice["text"] for choice in whole["choices"]])
        self.assertNotIn("usage", self.streamed(prompt="a", max_tokens=2)[2][-1])
        # A stop string that begins in one token and ends in another, wherever the model puts it.
        text = self.whole(prompt="def ", max_tokens=40, temperature=0)["choices"][0]["text"]
        stop = re.search(r"(?<=.)[a-z ]{3}", text, re.DOTALL).group()
        whole, events = self.compare(prompt="def ", max_tokens=40, temperature=0, stop=[stop, "\u20ac\u20ac"])
        self.assertEqual((whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]),
                         (text[:text.index(stop)], "stop"))
        return answers

    def test_a_stream_says_what_the_whole_answer_says_at_every_layout(self):
        self.train()
        alone = None
        for layout in LAYOUTS:
            process = self.serve(*layout)
            answers = self.compare_all()
            alone = alone or answers
            self.assertEqual(answers, alone, layout)
            self.end_server(process)

    def test_experts_are_shared_too(self):
        self.train(*EXPERTS)
        alone = None
        for layout in ([], ["--ranks", 2, "--parallel.expert=2"]):
            process = self.serve(*layout)
            answers = self.compare_all()
            alone = alone or answers
            self.assertEqual(answers, alone, layout)
            self.end_server(process)

    def test_characters_come_whole(self):
        (self.folder / "text" / "0.txt").write_text("\u20ac\U0001f600\u00e9" * 500)
        self.succeed("data", "prepare", "--input", "text/0.txt", "--tokenizer", "bytes", "--output", "data/tiny")
        self.train("--optimizer.learning_rate=0.01", "--train.steps=60")
        process = self.serve()
        whole, events = self.compare(prompt="\u20ac", max_tokens=24, temperature=0)
        text = whole["choices"][0]["text"]
        self.assertRegex(text, "[\u20ac\U0001f600\u00e9]{3}")
        # A token is a byte: characters of several tokens have one event.
        self.assertLess(len([event for event in events if event["choices"] and event["choices"][0]["text"]]), 24)
        self.end_server(process)

    def test_several_clients_are_answered_at_the_same_time(self):
        self.train()
        for layout in ([], ["--ranks", 2, "--parallel.pipeline=2"]):
            process = self.serve(*layout)
            requests = [{"prompt": ["def ", "a"], "max_tokens": 10 + seed, "seed": seed} for seed in range(12)]
            alone = [self.whole(**request)["choices"] for request in requests]
            endless = self.events(self.ask({"prompt": "def ", "max_tokens": ENDLESS, "stream": True}))
            next(endless)
            found = [None] * len(requests)

            def answer(i):
                if i % 3 == 0:
                    found[i] = [choice["text"] for choice in self.whole(**requests[i])["choices"]]
                else:
                    texts, _, _ = self.streamed(**requests[i])
                    found[i] = [texts[0], texts[1]]
            threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(requests))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT)
            self.assertEqual(found, [[choice["text"] for choice in choices] for choices in alone])
            next(endless)  # which has gone on meanwhile
            self.end_server(process)  # and ends with the server

    def await_gone(self, process):
        while "its client has gone" not in (line := process.stdout.readline()):
            self.assertIn("request", line)
        return int(re.search(r"(\d+) new tokens", line).group(1))

    def test_a_client_that_goes_away_ends_its_request(self):
        self.train()
        for layout in ([], ["--ranks", 2, "--parallel.tensor=2"], ["--ranks", 2]):
            process = self.serve(*layout)
            for streams in (True, False):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
                connection.request("POST", "/v1/completions",
                                   json.dumps({"prompt": ["def ", "a"], "max_tokens": ENDLESS, "stream": streams}),
                                   {"Authorization": f"Bearer {self.token}"})
                if streams:
                    response = connection.getresponse()
                    events = self.events(response)
                    for _ in range(3):
                        next(events)
                    response.close()
                else:  # the server answers in the order in which it is asked
                    self.assertEqual(self.ask({}).status, 400)
                connection.close()
                self.assertLess(self.await_gone(process), ENDLESS)
            self.compare(prompt="def ", max_tokens=5, temperature=0)
            self.end_server(process)

    def test_a_client_that_does_not_read_is_dropped(self):
        self.train()
        process = self.serve()
        body = json.dumps({"prompt": ["def "] * 16, "max_tokens": ENDLESS, "stream": True})
        with socket.create_connection(("127.0.0.1", self.port)) as silent:
            silent.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
                            f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            # What it has not read is bounded: an event of a token has about 200 bytes.
            self.assertLess(self.await_gone(process), 100_000)
        self.compare(prompt="def ", max_tokens=5, temperature=0)
        self.end_server(process)

    def test_an_old_client_reads_until_the_connection_ends(self):
        self.train("--train.steps=1")
        process = self.serve()
        body = json.dumps({"prompt": "a", "max_tokens": 4, "stream": True})
        with socket.create_connection(("127.0.0.1", self.port)) as old:
            old.sendall((f"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            with old.makefile("rb") as file:
                head, _, rest = file.read().partition(b"\r\n\r\n")
        self.assertNotIn(b"Transfer-Encoding", head)
        self.assertTrue(rest.startswith(b"data: {"))
        self.assertTrue(rest.endswith(b"data: [DONE]\n\n"))
        self.end_server(process)

    def test_wrong_requests_are_answered_with_one_line(self):
        self.train("--train.steps=1")
        process = self.serve()
        chat = [{"role": "user", "content": "a"}]
        for request, path, *parts in (
                ({"prompt": "a", "stream": 1}, "completions", "stream is 1"),
                ({"prompt": "a", "stream": True, "logprobs": 1}, "completions", "stream", "logprobs"),
                ({"prompt": "a", "stream_options": {}}, "completions", "stream_options", "stream"),
                ({"prompt": "a", "stream": True, "stream_options": {"other": 1}}, "completions", "other"),
                ({"prompt": "a", "stream": True, "stream_options": {"include_usage": 2}}, "completions", "include_usage"),
                ({"messages": chat}, "chat/completions", "bytes", "chat template")):
            response = self.ask(request, f"/v1/{path}")
            answer = json.loads(response.read())
            self.assertEqual(response.status, 400, answer)
            for part in parts:
                self.assertIn(part, answer["error"]["message"])
            self.assertNotIn("\n", answer["error"]["message"])
        self.end_server(process)

    def test_a_lost_rank_ends_the_stream_and_the_server(self):
        self.train("--train.steps=1")
        process = self.serve("--ranks", 2)
        events = self.events(self.ask({"prompt": "def ", "max_tokens": ENDLESS, "stream": True}))
        next(events)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        with self.assertRaises((http.client.IncompleteRead, ConnectionError, AssertionError)):
            for _ in events:
                pass
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3)
        self.assertRegex(errors, r"^trireme: rank 1 was killed by signal 9 \(Killed[^\n]*\)\n$")


if __name__ == "__main__":
    unittest.main()

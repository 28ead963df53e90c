"""What a trained model says of texts and questions, alone, on ranks and over HTTP, beside transformers."""
import http.client
import json
import math
import os
import re
import signal
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import torch
import transformers

from program import TIMEOUT, ProgramTest, rank_of

transformers.utils.logging.disable_progress_bar()
LENGTH = 32  # tokens of a sequence
# Of a token's log probability: transformers' llama computes norms and angles in fp32 always, and about 14 products lie one
# behind the other, each of sums of up to 80 terms whose errors walk at random: 14 * sqrt(80) = 125 roundings.
TOLERANCE = 125 * 2 ** -24
END = 256  # of a document
TEXTS = ["def import", "é self value " * 9, "x", "return"]
QUESTIONS = [("def ", ["import", "self", "z"], 0), ("value  ", ["return self", "qqq"], 1), ("", ["a", "def value"], 1),
             ("def " * 20, ["self", "import import"], 0)]


def windows(tokens, first):
    """The tokens from `first` on, in pieces of a sequence, each behind what a forward reads before its last token."""
    while first < len(tokens):
        end = min(first + LENGTH, len(tokens))
        yield tokens[max(0, end - 1 - LENGTH):end], end - first
        first = end


class Evaluation(ProgramTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        self.succeed("train", "tiny.toml", "--train.steps=6", "--train.precision=fp64", "--train.evaluate_interval=0")
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        self.reference = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "exported", dtype=torch.float64)
        (self.folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + "\n")
        (self.folder / "quiz.jsonl").write_text("".join(
            json.dumps({"prompt": prompt, "choices": choices, "answer": answer}) + "\n" for prompt, choices, answer in QUESTIONS))

    def likelihood(self, tokens, first=1):
        """Of the tokens from `first` on, and whether greedy decoding writes them."""
        total, is_greedy = 0.0, True
        for read, asked in windows(tokens, first):
            with torch.no_grad():
                rows = torch.log_softmax(self.reference(torch.tensor([read[:-1]])).logits[0, -asked:], -1)
            targets = torch.tensor(read[-asked:])
            total += rows.gather(1, targets[:, None]).sum().item()
            is_greedy = is_greedy and bool((rows.argmax(1) == targets).all())
        return total, is_greedy

    def choice(self, prompt, choice):
        return self.likelihood([END, *(prompt + choice).encode()], 1 + len(prompt.rstrip().encode()))

    def test_results_are_those_of_transformers_at_every_layout(self):
        nats = [-self.likelihood([END, *text.encode()])[0] for text in TEXTS]
        size = sum(len(text.encode()) for text in TEXTS)
        asked = [[self.choice(prompt, choice) for choice in choices] for prompt, choices, _ in QUESTIONS]
        best = [max(range(len(row)), key=lambda i: row[i][0]) for row in asked]
        by_byte = [max(range(len(row)), key=lambda i: row[i][0] / len(choices[i].encode()))
                   for row, (_, choices, _) in zip(asked, QUESTIONS)]
        accuracy = sum(found == answer for found, (_, _, answer) in zip(best, QUESTIONS)) / len(QUESTIONS)
        by_bytes = sum(found == answer for found, (_, _, answer) in zip(by_byte, QUESTIONS)) / len(QUESTIONS)
        alone = None
        for layout in ([], ["--ranks", 2, "--parallel.tensor=2"], ["--ranks", 2, "--parallel.pipeline=2"], ["--ranks", 3]):
            texts, quiz = json.loads(self.succeed("evaluate", "run", "--task", "texts.jsonl", "--task", "quiz.jsonl", "--json",
                                                  "--output", "rows.jsonl", *layout))
            self.assertEqual((texts["task"], texts["rows"], texts["bytes"], texts["tokens"]), ("texts", len(TEXTS), size, size))
            self.assertAlmostEqual(texts["bits_per_byte"], sum(nats) / math.log(2) / size, delta=2 * TOLERANCE)
            self.assertAlmostEqual(texts["nats_per_token"], sum(nats) / size, delta=TOLERANCE)
            self.assertEqual((quiz["accuracy"], quiz["normalised_accuracy"]), (accuracy, by_bytes))
            self.assertAlmostEqual(quiz["accuracy_error"], math.sqrt(accuracy * (1 - accuracy) / (len(QUESTIONS) - 1)))
            rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
            self.assertEqual([row["task"] for row in rows], ["texts"] * len(TEXTS) + ["quiz"] * len(QUESTIONS))
            alone = alone or rows
            for row, one in zip(rows, alone):
                for value, expected in zip(row["log_likelihoods"], one["log_likelihoods"]):
                    self.assertAlmostEqual(value, expected, delta=1e-10)
            for row, value in zip(rows, nats):
                self.assertAlmostEqual(row["log_likelihoods"][0], -value, delta=200 * TOLERANCE)
            for row, expected, chosen, chosen_by_byte in zip(rows[len(TEXTS):], asked, best, by_byte):
                for found, (value, _) in zip(row["log_likelihoods"], expected):
                    self.assertAlmostEqual(found, value, delta=20 * TOLERANCE)
                self.assertEqual(row["greedy"], [is_greedy for _, is_greedy in expected])
                self.assertEqual((row["chosen"], row["chosen_by_byte"]), (chosen, chosen_by_byte))
        shown = self.succeed("evaluate", "run", "--task", "texts.jsonl", "--task", "quiz.jsonl", "--limit", 2)
        self.assertRegex(shown, r"^texts +2 texts +bits per byte \d\.\d{4}, nats per token \d\.\d{4}\n"
                                r"quiz +2 questions  accuracy \d\.\d{4} \+- \d\.\d{4}\n +by byte  \d\.\d{4} \+- \d\.\d{4}\n$")

    def test_wrong_tasks_are_refused_with_their_line(self):
        question = {"prompt": "a", "choices": ["b", "c"], "answer": 0}
        for lines, *parts in (([], "bad.jsonl"), (["{"], ":1"), ([{"words": "a"}], ":1", '"choices"'),
                              ([{"text": "a"}, question], ":2", "a file of its own"), ([question | {"answer": 2}], "answer is 2"),
                              ([question | {"choices": ["b"]}], "choices"), ([question | {"choices": ["b", ""]}], "choices[1]"),
                              ([{"text": 3}], "text is 3"), ([{k: v for k, v in question.items() if k != "prompt"}], "prompt")):
            (self.folder / "bad.jsonl").write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n"
                                                           for line in lines))
            self.fail_with(2, parts, "evaluate", "run", "--task", "bad.jsonl")
        self.fail_with(2, ["--task"], "evaluate", "run")
        self.fail_with(2, ["none.jsonl"], "evaluate", "run", "--task", "none.jsonl")
        self.fail_with(2, ["--output"], "evaluate", "run", "--task", "quiz.jsonl", "--output", "none/rows.jsonl")
        self.fail_with(4, ["nowhere"], "evaluate", "nowhere", "--task", "quiz.jsonl")

    def serve(self, *options):
        process = self.start("serve", "run", "--port", 0, *options)
        lines = [process.stdout.readline() for _ in range(4)]
        port = int(re.search(r"^at      http://127\.0\.0\.1:(\d+)/v1/completions$", lines[1]).group(1))
        return process, port, lines[2].split()[1]

    def ask(self, port, token, request, method="POST", path="/v1/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        body = request if isinstance(request, str) else json.dumps(request)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        answer = json.loads(response.read() or "null")
        connection.close()
        return response.status, answer

    def completions(self, port, token, **request):
        status, answer = self.ask(port, token, request)
        self.assertEqual(status, 200, answer)
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(len(answer["choices"]))))
        return answer["choices"]

    def test_the_server_says_what_evaluation_and_generation_say(self):
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("def ", "é")))
        written = [json.loads(line) for line in self.succeed(
            "generate", "--checkpoint", "run", "--prompts", "prompts.jsonl", "--tokens", 12, "--temperature", 0,
            "--stop", "qq").splitlines()]
        for layout in ([], ["--ranks", 2, "--parallel.tensor=2"], ["--ranks", 2]):
            process, port, token = self.serve(*layout)
            # As lm-evaluation-harness asks for the likelihood of a continuation: tokens, echoed.
            asked = [[END, *prompt.encode(), *choices[0].encode()][-LENGTH:] for prompt, choices, _ in QUESTIONS]
            for choice, tokens in zip(self.completions(port, token, prompt=asked, temperature=0, max_tokens=1, logprobs=1,
                                                       echo=True, seed=1234, model="any"), asked):
                found = choice["logprobs"]["token_logprobs"]
                self.assertEqual(len(found), len(tokens) + 1 if choice["finish_reason"] == "length" else len(tokens))
                self.assertIsNone(found[0])
                for first in {1, max(1, len(tokens) - 2)}:
                    value, is_greedy = self.likelihood(tokens, first)
                    self.assertAlmostEqual(sum(found[first:len(tokens)]), value, delta=LENGTH * TOLERANCE)
                    tops = choice["logprobs"]["top_logprobs"][first:len(tokens)]
                    self.assertEqual(all(one == max(top.values()) for one, top in zip(found[first:len(tokens)], tops)), is_greedy)
                self.assertEqual(len(choice["logprobs"]["tokens"]), len(found))
            texts = self.completions(port, token, prompt=["def ", "é"], max_tokens=12, temperature=0, stop="qq")
            self.assertEqual([(choice["text"], choice["finish_reason"]) for choice in texts],
                             [(line["text"], line["end"]) for line in written])
            echoed = self.completions(port, token, prompt="def ", max_tokens=0, echo=True)
            self.assertTrue(echoed[0]["text"].endswith("def "))
            self.assertEqual(self.ask(port, token, "", "GET", "/v1/models")[1]["data"][0]["object"], "model")
            self.end_server(process)

    def test_wrong_requests_are_answered_with_one_line(self):
        process, port, token = self.serve("--token", "secret")
        self.assertEqual(token, "secret")
        self.assertEqual(self.ask(port, "", {"prompt": "a"})[0], 401)
        self.assertEqual(self.ask(port, "other", {"prompt": "a"})[0], 401)
        self.assertEqual(self.ask(port, token, {"prompt": "a"}, path="/v1/chat")[0], 404)
        self.assertEqual(self.ask(port, token, {"prompt": "a"}, method="PUT")[0], 405)
        for request, *parts in (("{", "the request"), ({}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": 7}, "prompt"),
                                ({"prompt": [257]}, "257"), ({"prompt": [[1], "a", [-1]]}, "prompt[2][0] is -1"),
                                ({"prompt": "a", "max_tokens": -1}, "max_tokens"), ({"prompt": "a", "top_p": 0}, "top_p"),
                                ({"prompt": "a", "logprobs": 5}, "logprobs is 5"), ({"prompt": "a", "best_of": 2}, "best_of"),
                                ({"prompt": "a", "n": 2}, "n is 2"), ({"prompt": "a", "tools": []}, "tools"),
                                ({"prompt": "a" * LENGTH}, "33 tokens", "32"), ({"prompt": "a", "stop": ["b", ""]}, "stop[1]"),
                                ({"prompt": "a", "logit_bias": {"3": 1}}, "logit_bias")):
            status, answer = self.ask(port, token, request)
            self.assertEqual(status, 400, request)
            for part in parts:
                self.assertIn(part, answer["error"]["message"])
            self.assertNotIn("\n", answer["error"]["message"])
        self.fail_with(2, [str(port), "in use"], "serve", "run", "--port", port)
        self.assertEqual(self.ask(port, token, {"prompt": "a", "max_tokens": 1})[0], 200)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 0)

    def test_a_lost_rank_ends_the_server(self):
        process, port, token = self.serve("--ranks", 2)
        self.assertEqual(self.ask(port, token, {"prompt": "a", "max_tokens": 1})[0], 200)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 3)
        self.assertRegex(errors, r"^trireme: rank 1 was killed by signal 9 \(Killed[^\n]*\)\n$")


if __name__ == "__main__":
    unittest.main()

"""Chat templates rendered by Hugging Face's transformers: the reference of reference_test.cc.

reference.py FOLDER TEMPLATES SNIPPETS writes FOLDER/cases.jsonl, a JSON object in each line: a template
of the folder TEMPLATES with a conversation that is drawn at random, or a line of the file SNIPPETS with
fixed variables; and what transformers makes of it: `text` and `generated`, the bytes in it that the
assistant says, or `error`.
"""

import json
import logging
import os
import random
import sys
import warnings
from datetime import datetime
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

from transformers.utils import chat_template_utils

CONVERSATIONS = 200
NOW = datetime(2025, 3, 9, 7, 5, 2)
PIECES = ["", "Hello", " how are you? ", "\n", "two\nlines\r\n", "\ttab", 'say "hi"', "it's", "back\\slash", "é",
          "日本語", "😀👍🏽", "ΟΔΟΣ", "a\u00a0b", "\u200b", "<|im_end|>", "</s>", "{{ x }}", "{% if %}", "<b>&amp;",
          "<think>hm\n</think>\n\n", "</think>", "<tool_response>\nok\n</tool_response>", "/no_think", "/think",
          "/system_override", "  ", "\u2028", "\x7f", "x" * 60, "1,2;3", "%s {}", "ß ŉ ﬁ İ"]
NUMBERS = [0, 1, -7, 123456789012, 2**53, 0.5, -0.0, 1e-7, 1e22, 3.0, 123456.789, True, False, None]
ROLES = ["system", "user", "assistant", "tool", "ipython", "developer"]

# The variables of the snippets.
VARIABLES = {
    "messages": [
        {"role": "user", "content": "Hi \"there\" it's\n<b> é ß Σας 😀"},
        {"role": "assistant", "content": "ok", "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": 1, "b": [1.5, None, True], "c": {"x": "é"}}}}]},
        {"role": "user", "content": ""}],
    "bos_token": "<s>", "n": 3, "f": 1e16, "tools": [{"a": 1}], "d": {"b": 2, "A": 1, "c": [1, 2]},
    "l": [3, 1, 2], "e": [], "s": " ab c "}


class Now(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


class Draw:
    """Random conversations, tools and options."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def text(self, most=3):
        return "".join(self.random.choice(PIECES) for _ in range(self.random.randint(0, most)))

    def json(self, depth=3):
        kind = self.random.random()
        if depth == 0 or kind < 0.4:
            return self.random.choice([self.text(), self.random.choice(NUMBERS)])
        count = self.random.randint(0, 3)
        if kind < 0.65:
            return [self.json(depth - 1) for _ in range(count)]
        return {self.text(1) + str(i): self.json(depth - 1) for i in range(count)}

    def schema(self, depth=2):
        kind = self.random.choice(["string", "number", "integer", "boolean", "array", "object", "oneOf", "list", "any"])
        schema = {"type": kind}
        if kind == "array" and self.chance(0.8):
            schema["items"] = self.schema(depth - 1) if depth else {"type": "string"}
        elif kind == "object" and depth:
            schema["properties"] = {f"p{i}": self.schema(depth - 1) for i in range(self.random.randint(0, 2))}
            schema["required"] = ["p0"]
        elif kind == "oneOf":
            schema = {"oneOf": [self.schema(0) for _ in range(self.random.randint(1, 3))]}
        elif kind == "list":
            schema = {"type": ["string", "null"][:self.random.randint(1, 2)]}
        elif kind == "string" and self.chance(0.4):
            schema["enum"] = ["a", self.text(1)]
        for name, value in (("description", self.text()), ("nullable", True), ("default", self.json(1))):
            if self.chance(0.3):
                schema[name] = value
        return schema

    def tool(self, number):
        function = {"name": f"tool_{number}", "description": self.text()}
        if self.chance(0.9):
            names = [f"arg{i}" for i in range(self.random.randint(0, 3))]
            function["parameters"] = {"type": "object", "properties": {name: self.schema() for name in names},
                                      "required": names[:1]}
        if self.chance(0.3):
            function["return"] = {"type": "string"}
        return {"type": "function", "function": function}

    def tool_call(self):
        arguments = {self.text(1) + "k": self.json(2), "x": self.text()} if self.chance(0.8) else self.json(1)
        if self.chance(0.3):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = {"type": "function", "function": {"name": self.random.choice(["tool_0", "brave_search"]),
                                                 "arguments": arguments}}
        if self.chance(0.8):
            call["id"] = self.random.choice(["abcdefghi", "123456789", "short"])
        return call if self.chance(0.9) else call["function"]

    def content(self):
        kind = self.random.random()
        if kind < 0.96:
            return self.text()
        if kind < 0.97:
            return None
        if kind < 0.98:
            return self.json(1)
        return [{"type": "text", "text": self.text()}, {"type": "image"}][:self.random.randint(0, 2)]

    def message(self, role):
        message = {"role": role, "content": self.content()}
        if role == "assistant" and self.chance(0.2):
            message["tool_calls"] = [self.tool_call() for _ in range(self.random.choice([1, 1, 1, 2]))]
            message["content"] = self.random.choice([None, "", self.text()])
        if role == "assistant" and self.chance(0.2):
            message[self.random.choice(["reasoning_content", "thinking", "reasoning"])] = self.random.choice([None, self.text()])
        if role in ("tool", "ipython") and self.chance(0.8):
            message["tool_call_id"] = "abcdefghi"
        if self.chance(0.01):
            del message["content"]
        return message

    def messages(self):
        roles = ["system"] * self.chance(0.4)
        for turn in range(self.random.randint(0, 6)):
            roles.append(("user", "assistant")[turn % 2])
            if roles[-1] == "assistant" and self.chance(0.2):
                roles += ["tool"] * self.random.randint(1, 2)
        if self.chance(0.08) and roles:
            roles[self.random.randrange(len(roles))] = self.random.choice(ROLES)
        return [self.message(role) for role in roles]

    def variables(self):
        variables = {"messages": self.messages(), "add_generation_prompt": self.chance(0.5)}
        options = {"bos_token": (0.99, "<s>"), "eos_token": (0.99, "</s>"),
                   "tools": (0.4, [self.tool(i) for i in range(self.random.randint(0, 3))]),
                   "enable_thinking": (0.4, self.chance(0.5)), "tools_in_user_message": (0.3, self.chance(0.5)),
                   "builtin_tools": (0.2, ["browser", "python", "brave_search", "code_interpreter"]),
                   "reasoning_effort": (0.3, "high"), "date_string": (0.2, "1 Jan 2025"),
                   "xml_tools": (0.1, [self.tool(9)]), "python_tools": (0.1, ["def f(): pass"])}
        for name, (probability, value) in options.items():
            if self.chance(probability):
                variables[name] = value
        return variables


def rendered(template, variables):
    options = {name: value for name, value in variables.items() if name != "messages"}
    try:
        (text,), (generated,) = chat_template_utils.render_jinja_template(
            conversations=[variables["messages"]], chat_template=template, return_assistant_tokens_mask=True, **options)
    except Exception as error:  # whatever a template's Python raises
        return {"error": f"{type(error).__name__}: {error}"}

    def byte(index):
        return len(text[:index].encode())

    return {"text": text, "generated": [[byte(begin), byte(end)] for begin, end in generated]}


def main():
    folder, templates, snippets = map(Path, sys.argv[1:])
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of escapes that Python does not know
    chat_template_utils.datetime = Now
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as file:
        def write(name, template, variables):
            case = {"name": name, "template": template, "variables": variables, **rendered(template, variables)}
            file.write(json.dumps(case) + "\n")

        for path in sorted(templates.glob("*.jinja")):
            template = path.read_text(encoding="utf-8")
            draw = Draw(path.name)
            for _ in range(CONVERSATIONS):
                write(path.name, template, draw.variables())
        for number, snippet in enumerate(snippets.read_text(encoding="utf-8").split("\n")[:-1], 1):
            write(f"{snippets.name}:{number}", snippet, VARIABLES)


if __name__ == "__main__":
    main()

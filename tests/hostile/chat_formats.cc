// Conversations in JSON lines, and what a model's folder says of how to write them.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/dataset/byte_level/tokenizer_json.h"
#include "tests/hostile/format.h"
#include "trireme/dataset/conversation/chat_encoder.h"
#include "trireme/dataset/conversation/prepare_chat.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}"
    "{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}</s>{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ mood }}";

class Chat : public Format {
 public:
  explicit Chat(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    put_file(folder_ / "tokenizer.json", dataset::small_tokenizer_text());
  }
  std::string name() const override { return "chat"; }

  void write(Random& random) override {
    const ordered_json line = {
        {"messages",
         {{{"role", "system"}, {"content", "s\u00e9 <|im_start|>"}},
          {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}},
          {{"role", "assistant"},
           {"content", "e\u0301  "},
           {"tool_calls", {{{"name", "f"}, {"arguments", {{"x", {1, 2.5, nullptr}}}}}}}}}},
        {"tools", {{{"name", "f"}}}},
        {"chat_template_kwargs", {{"mood", "calm"}}}};
    const ordered_json share = {
        {"conversations",
         {{{"from", "human"}, {"value", "u"}}, {{"from", "gpt"}, {"value", "a"}}}}};
    std::string text = line.dump() + "\n";
    text += damaged_json(random.one_in(4) ? share : line, -1, random) + "\n";
    if (random.one_in(4)) damage_bytes(text, random);
    put_file(folder_ / "chat.jsonl", text);
    const ordered_json config = {
        {"bos_token", {{"content", "<s>"}}},
        {"eos_token", "</s>"},
        {"chat_template", {{{"name", "default"}, {"template", kTemplate}}}}};
    put_file(folder_ / "tokenizer_config.json",
             random.one_in(3) ? damaged_json(config, -1, random) : config.dump());
  }

  void read() override {
    const std::string output = folder_ / "out";
    expect_refusal_or_sense([&] {
      const dataset::PrepareChatReport report = dataset::prepare_chat(
          {.inputs = {folder_ / "chat.jsonl"}, .tokenizer_model = folder_, .output = output});
      const dataset::TokenStream stream(output, report.vocab_size);
      require(stream.file().num_tokens() == report.training.tokens, "another number of tokens");
      require(stream.mask() != nullptr, "no mask");
      require(report.training.trained_tokens <= report.training.tokens, "more than all is learnt");
    });
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace

void add_chat_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Chat>(folder / "chat"));
}

}  // namespace trireme::hostile

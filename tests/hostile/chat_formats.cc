// Conversations in JSON lines, and what a model's folder says of how to write them.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/dataset/byte_level/tokenizer_json.h"
#ifdef TRIREME_HAVE_IMAGES
#include "tests/dataset/image/encoded.h"
#endif
#include "tests/hostile/format.h"
#include "trireme/dataset/conversation/chat_encoder.h"
#include "trireme/dataset/conversation/chat_images.h"
#include "trireme/dataset/conversation/prepare_chat.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/samples/image_samples.h"
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
  Chat(std::filesystem::path folder, bool has_images)
      : folder_(std::move(folder)), has_images_(has_images) {
    std::filesystem::create_directories(folder_);
    ordered_json tokenizer = dataset::small_tokenizer_json();
    tokenizer["added_tokens"][0]["content"] = dataset::kImagePlace;
    put_file(folder_ / "tokenizer.json", tokenizer.dump());
#ifdef TRIREME_HAVE_IMAGES
    put_file(folder_ / "a.png", dataset::png_of(dataset::picture(5, 7)));
#endif
  }
  std::string name() const override { return has_images_ ? "chat-images" : "chat"; }

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
    const ordered_json images = {
        {"images", {"a.png"}},
        {"messages",
         {{{"role", "user"}, {"content", "<image> Hi <image>"}},
          {{"role", "user"}, {"content", {{{"type", "image"}, {"path", "file://a.png"}}}}},
          {{"role", "assistant"}, {"content", "e"}}}}};
    const ordered_json& damaged = has_images_ ? images : line;
    std::string text = line.dump() + "\n";
    text += damaged_json(random.one_in(4) ? share : damaged, -1, random) + "\n";
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
      const dataset::PrepareChatReport report =
          dataset::prepare_chat({.inputs = {folder_ / "chat.jsonl"},
                                 .tokenizer_model = folder_,
                                 .output = output,
                                 .image_size = has_images_ ? kSize : 0,
                                 .patch_size = kPatch});
      const dataset::TokenStream stream(output, report.vocab_size);
      require(stream.file().num_tokens() == report.training.tokens, "another number of tokens");
      require(stream.mask() != nullptr, "no mask");
      require(report.training.trained_tokens <= report.training.tokens, "more than all is learnt");
      if (report.training.images > 0) use_images(report, output);
    });
  }

 private:
  static constexpr int64_t kSize = 4, kPatch = 2;

  static void use_images(const dataset::PrepareChatReport& report, const std::string& output) {
    const dataset::TokenOptions tokens{.sequence_length = report.training.tokens};
    dataset::ImageTokenOptions options{.image_token = dataset::kEndOfDocument,
                                       .tokens_per_image = (kSize / kPatch) * (kSize / kPatch),
                                       .image_size = kSize};
    const auto packed = std::make_shared<const dataset::PackedSource>(
        dataset::TokenStream(output, report.vocab_size), tokens);
    const dataset::ImageTextSamples samples(packed, tokens, options);
    require(samples.images()->num_documents() == report.training.images, "other images");
    for (int64_t i = 0; i < samples.size(); ++i) samples.get(i, {});
  }

  std::filesystem::path folder_;
  bool has_images_;
};

}  // namespace

void add_chat_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Chat>(folder / "chat", /*has_images=*/false));
#ifdef TRIREME_HAVE_IMAGES
  formats.push_back(std::make_unique<Chat>(folder / "chat-images", /*has_images=*/true));
#endif
}

}  // namespace trireme::hostile

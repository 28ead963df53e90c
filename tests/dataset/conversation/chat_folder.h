// A folder of a chat model, as far as its conversations go: a small tokenizer, whose special tokens
// are <|endoftext|> (261), <|im_start|> (262) and </s> (263), and a template.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/dataset/byte_level/tokenizer_json.h"
#include "tests/dataset/data.h"

namespace trireme::dataset {

inline constexpr int32_t kEndOfText = 261;
inline constexpr int32_t kStart = 262;
inline constexpr int32_t kEndOfTurn = 263;

// "<|im_start|>user|Hi</s>", and the assistant says its content and </s>.
inline constexpr const char* kMarkedTemplate =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}|"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration "
    "%}"
    "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}";

// The same without marks.
inline constexpr const char* kPlainTemplate =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}|{{ m.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant|{% endif %}";

inline void write_chat_folder(const std::filesystem::path& folder,
                              std::string_view chat_template = kMarkedTemplate,
                              std::string_view config = R"({"eos_token": "</s>"})") {
  write_text(folder / "tokenizer.json", small_tokenizer_text());
  write_text(folder / "tokenizer_config.json", config);
  if (!chat_template.empty()) write_text(folder / "chat_template.jinja", chat_template);
}

}  // namespace trireme::dataset

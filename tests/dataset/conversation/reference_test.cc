// Tokens and masks of conversations against Hugging Face's transformers: drawn conversations with
// the templates of model families, by tokenizers of several kinds.
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/conversation/chat_encoder.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono;

constexpr local_seconds kNow = local_days(2025y / March / 9d) + hours(7) + minutes(5) + seconds(2);
constexpr int kNumTemplates = 21;

struct Count {
  int texts = 0;
  int errors = 0;
  int learnt = 0;
};

// What a case becomes, in the reference's form.
ordered_json encoded(const ChatEncoder& encoder, const std::string& line) {
  try {
    const ChatTokens found =
        encoder.encode(read_conversation(line, encoder.format().template_text, "line"), "line");
    return {{"tokens", found.tokens}, {"learnt", found.learnt}};
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return {{"error", error.what()}};
  }
}

class ChatEncoderReference : public ::testing::TestWithParam<int> {};

TEST_P(ChatEncoderReference, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const std::string templates = concat(TRIREME_CHAT_REFERENCES, "/templates/");
  const std::string command = concat("'", TRIREME_TEST_PYTHON, "' -B '", TRIREME_CHAT_REFERENCES,
                                     "/../conversation/reference.py' '", folder.path().string(),
                                     "' '", TRIREME_CHAT_REFERENCES, "' ", GetParam());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream file(folder / "cases.jsonl");
  std::map<std::string, Count> counts;
  std::unique_ptr<const ChatEncoder> encoder;
  for (std::string text; std::getline(file, text);) {
    const auto expected = ordered_json::parse(text);
    const std::string name = expected["template"], line = expected["line"];
    if (!counts.contains(name)) {
      encoder = std::make_unique<const ChatEncoder>(
          read_chat_format({.tokenizer = folder.path() / expected["kind"].get<std::string>(),
                            .chat_template = templates + name}),
          "", kNow);
    }
    Count& count = counts[name];
    SCOPED_TRACE(name + ", " + line);
    const auto ours = encoded(*encoder, line);
    ++(expected.contains("error") ? count.errors : count.texts);
    if (expected.contains("error")) {
      EXPECT_TRUE(ours.contains("error")) << expected["error"] << "\nours: " << ours;
      continue;
    }
    EXPECT_EQ(ours.value("tokens", ordered_json()), expected["tokens"]) << ours.value("error", "");
    EXPECT_EQ(ours.value("learnt", ordered_json()), expected["learnt"]);
    for (const int one : expected["learnt"]) count.learnt += one;
  }
  EXPECT_EQ(counts.size(), static_cast<size_t>(kNumTemplates));
  int templates_with_both = 0;
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(count.texts + count.errors, GetParam()) << name;
    templates_with_both += count.texts > GetParam() / 4 && count.learnt > 0 ? 1 : 0;
  }
  EXPECT_GE(templates_with_both, 12);
}

INSTANTIATE_TEST_SUITE_P(Conversations, ChatEncoderReference, ::testing::Values(20, 1000));

}  // namespace
}  // namespace trireme::dataset

// Our rendering against Hugging Face's transformers: templates of model families with conversations
// drawn at random, and snippets of the language. Texts are equal byte for byte, and so is what the
// assistant says in them; where one refuses, the other does.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/chat/chat_template.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono;

constexpr local_seconds kNow =
    local_days(2025y / March / 9d) + hours(7) + minutes(5) + seconds(2);  // as in reference.py
constexpr int kNumTemplates = 21;
constexpr int kConversations = 200;

// What a case becomes, in the reference's form.
ordered_json rendered(const ordered_json& test_case) {
  try {
    const ChatTemplate chat(test_case["template"].get_ref<const std::string&>(), "template");
    const auto result = chat.render(test_case["variables"], kNow);
    return {{"text", result.text}, {"generated", result.generated}};
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return {{"error", error.what()}};
  }
}

struct Count {
  int texts = 0;
  int errors = 0;
};

TEST(ChatTemplateReference, AgreesWithTransformers) {
  const harness::TemporaryFolder folder;
  const std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' -B '", TRIREME_CHAT_REFERENCES, "/reference.py' '",
             folder.path().string(), "' '", TRIREME_CHAT_REFERENCES, "/templates' '",
             TRIREME_CHAT_REFERENCES, "/snippets.txt'");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream file(folder / "cases.jsonl");
  std::map<std::string, Count> counts;
  for (std::string line; std::getline(file, line);) {
    const auto expected = ordered_json::parse(line);
    const auto ours = rendered(expected);
    const std::string name = expected["name"];
    Count& count = counts[name];
    SCOPED_TRACE(name + ", " + expected["variables"].dump());
    ++(expected.contains("error") ? count.errors : count.texts);
    if (expected.contains("error")) {
      EXPECT_TRUE(ours.contains("error")) << expected["error"] << "\nours: " << ours;
    } else {
      EXPECT_EQ(ours.value("text", ours.value("error", "")), expected["text"].get<std::string>());
      EXPECT_EQ(ours.value("generated", ordered_json()), expected["generated"]);
    }
  }
  int templates = 0;
  for (const auto& [name, count] : counts) {
    if (!name.ends_with(".jinja")) continue;
    ++templates;
    EXPECT_EQ(count.texts + count.errors, kConversations) << name;
    EXPECT_GT(count.texts, kConversations / 4) << name;
  }
  EXPECT_GE(templates, kNumTemplates);
}

}  // namespace
}  // namespace trireme::dataset

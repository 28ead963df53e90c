#include "trireme/tasks/export/model_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using ::testing::HasSubstr;

TEST(ModelCard, HasTheFactsAndTheWayToLoadIt) {
  const std::string text = to_markdown({.title = "vit image classifier",
                                        .library = "transformers",
                                        .pipeline = "image-classification",
                                        .license = "apache-2.0",
                                        .facts = {{"step", "300"}, {"odd", "a|b<c"}},
                                        .loading = "import transformers\n"});
  EXPECT_TRUE(text.starts_with(
      "---\nlicense: apache-2.0\nlibrary_name: transformers\npipeline_tag: image-classification\n"
      "tags:\n- trireme\n---\n\n# vit image classifier\n"));
  EXPECT_THAT(text, HasSubstr("| step | 300 |\n"));
  EXPECT_THAT(text, HasSubstr("| odd | a\\|b\\<c |\n")) << "a value stays in its cell";
  EXPECT_THAT(text, HasSubstr("| license | apache-2.0 |\n"));
  EXPECT_THAT(text, HasSubstr("```python\nimport transformers\n```\n"));
}

TEST(ModelCard, SaysThatNoLicenseIsStated) {
  const std::string text = to_markdown({.title = "x"});
  EXPECT_THAT(text, HasSubstr("| license | not stated |"));
  EXPECT_EQ(text.find("license:"), std::string::npos);
  EXPECT_EQ(text.find("```"), std::string::npos);
}

TEST(ExportOptions, ALicenseIsAnIdentifier) {
  EXPECT_NO_THROW(check_export({.license = "CC-BY-4.0"}));
  for (const std::string wrong : {"a b", "a\nb: c", "a:b", std::string(65, 'a').c_str()}) {
    EXPECT_THAT(harness::message_of<ConfigError>([&] { check_export({.license = wrong}); }),
                HasSubstr("--license is"));
  }
  EXPECT_THAT(harness::message_of<ConfigError>([] { check_export({.max_shard_bytes = 0}); }),
              HasSubstr("max_shard_size = 0"));
}

}  // namespace
}  // namespace trireme::tasks

#include "trireme/tasks/language/sources/source_counts.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/indexed_file_writer.h"
#include "trireme/dataset/prepare.h"

namespace trireme::tasks {
namespace {

class SourceCountsTest : public ::testing::Test {
 protected:
  // So many documents of 10 tokens.
  void write(const std::string& name, int num_documents) {
    dataset::IndexedFileWriter writer(prefix(name), /*vocab_size=*/100);
    for (int i = 0; i < num_documents; ++i) writer.add_document(std::vector<int32_t>(10, 7));
    writer.complete();
    writer.publish();
  }
  std::string prefix(const std::string& name) const { return (folder_ / name).string(); }

  harness::TemporaryFolder folder_;
};

TEST_F(SourceCountsTest, DocumentsTokensAndWeightsAreCounted) {
  write("code", 30);
  write("web", 100);
  write("web.validation", 4);
  auto sources =
      count_sources({"data.sources", {{"code", prefix("code"), 7}, {"web", prefix("web"), 3}}});
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].name, "code");
  EXPECT_EQ(sources[0].documents, 30);
  EXPECT_EQ(sources[0].tokens, 300);
  EXPECT_EQ(sources[0].validation_tokens, 0);
  EXPECT_DOUBLE_EQ(sources[0].weight, 0.7);
  EXPECT_EQ(sources[1].tokens, 1000);
  EXPECT_EQ(sources[1].validation_documents, 4);
  EXPECT_EQ(sources[1].validation_tokens, 40);
  use_tokens(sources, 2000);
  EXPECT_EQ(sources[0].used_tokens, 1400);
  EXPECT_DOUBLE_EQ(sources[0].epochs, 1400.0 / 300);
  EXPECT_EQ(sources[1].used_tokens, 600);
  EXPECT_DOUBLE_EQ(sources[1].epochs, 0.6);
}

TEST_F(SourceCountsTest, SamplesAreDividedAsTrainingTakesThem) {
  write("code", 30);
  write("web", 100);
  auto two =
      count_sources({"data.sources", {{"code", prefix("code"), 7}, {"web", prefix("web"), 3}}});
  const dataset::Blend blend(
      {{.name = "code", .weight = 7, .size = 29}, {.name = "web", .weight = 3, .size = 99}},
      /*repeats=*/true);
  use_samples(two, &blend, blend.size(), 33, 10);
  EXPECT_EQ(two[0].used_tokens + two[1].used_tokens, 330);
  EXPECT_EQ(two[0].used_tokens, 10 * blend.count(0, 33));
  EXPECT_DOUBLE_EQ(two[1].epochs, static_cast<double>(blend.count(1, 33)) / 99);
  auto one = count_sources({"data.path", {{.path = prefix("code")}}});
  use_samples(one, nullptr, 29, 58, 10);
  EXPECT_EQ(one[0].used_tokens, 580);
  EXPECT_DOUBLE_EQ(one[0].epochs, 2);
}

TEST_F(SourceCountsTest, AFileThatIsMissingIsNamed) {
  write("code", 3);
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              count_sources({"data.path", {{.path = prefix("none")}}});
            }).find(prefix("none")),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::tasks

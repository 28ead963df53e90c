#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/tasks/language/foreign/class_labels.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ClassLabels : public ::testing::Test {
 protected:
  ClassLabels() { fs::create_directories(checkpoint_); }
  void write(const fs::path& path, const std::string& text) const { std::ofstream(path) << text; }
  std::string refusal(const fs::path& folder) const {
    return harness::message_of<ConfigError>([&] { require_same_classes(folder, names_); });
  }
  harness::TemporaryFolder folder_;
  fs::path run_ = folder_ / "run", checkpoint_ = run_ / "checkpoints/step-000001",
           hf_ = folder_.path();
  dataset::ClassNames names_ = dataset::ClassNames::of({"bad", "good"}, "rows");
  dataset::ClassNames numbers_ = dataset::ClassNames::of({"0", "1"}, "rows");
};

TEST_F(ClassLabels, OfTransformersMustBeTheSameUnlessTheyNameNone) {
  const auto with = [&](const std::string& labels) {
    write(hf_ / "config.json", concat("{\"id2label\": ", labels, "}"));
  };
  with(R"({"0": "good", "1": "bad"})");
  EXPECT_THAT(refusal(hf_), HasSubstr("class 0 of the data is \"bad\""));
  EXPECT_NO_THROW(require_same_classes(hf_, numbers_));
  for (const char* same :
       {R"({"0": "bad", "1": "good"})", R"({"0": "LABEL_0", "1": "LABEL_1"})", "null", "{}"}) {
    with(same);
    EXPECT_NO_THROW(require_same_classes(hf_, names_)) << same;
  }
}

TEST_F(ClassLabels, OfARunAreFoundFromItsCheckpoints) {
  EXPECT_NO_THROW(require_same_classes(run_, names_));
  write(run_ / kClassesFile, dataset::ClassNames::of({"good", "ugly"}, "rows").text());
  write(checkpoint_ / "manifest.json", "");
  for (const fs::path& folder : {run_, checkpoint_})
    EXPECT_THAT(refusal(folder), HasSubstr("classes.json"));
  write(run_ / kClassesFile, names_.text());
  EXPECT_NO_THROW(require_same_classes(checkpoint_, names_));
}

TEST_F(ClassLabels, AnExportHasThoseOfItsRun) {
  write(checkpoint_ / "manifest.json", "");
  EXPECT_EQ(with_labels(checkpoint_, "{\"a\":1}"), "{\"a\":1}");
  write(run_ / kClassesFile, names_.text());
  const nlohmann::json found =
      nlohmann::json::parse(with_labels(checkpoint_, R"({"a": 1, "id2label": {"0": "x"}})"));
  EXPECT_EQ(found["id2label"], nlohmann::json({{"0", "bad"}, {"1", "good"}}));
  EXPECT_EQ(found["label2id"], nlohmann::json({{"bad", 0}, {"good", 1}}));
  EXPECT_EQ(found["a"], 1);
  // Numbers stand for the names of the imported model.
  write(run_ / kClassesFile, numbers_.text());
  const std::string kept = R"({"id2label":{"0":"x","1":"y"}})";
  EXPECT_EQ(with_labels(checkpoint_, kept), kept);
}

}  // namespace
}  // namespace trireme::tasks

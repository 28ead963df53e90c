#include "trireme/tasks/vision/trained_images.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::tasks {
namespace {

TEST(TrainedImages, AreReadAsTheyWereWritten) {
  const harness::TemporaryFolder folder;
  const TrainedImages images{.shape = {3, 48, 40}, .classes = {"cat", "big \"dog\"", "Zwölf"}};
  write_file_atomically(folder / "images.json", to_json(images));
  const TrainedImages read = read_trained_images(folder / "images.json");
  EXPECT_EQ(read.shape, images.shape);
  EXPECT_EQ(read.classes, images.classes);
}

TEST(TrainedImages, RefusesAnythingElse) {
  const harness::TemporaryFolder folder;
  const auto error_of = [&](const std::string& text) {
    write_file_atomically(folder / "images.json", text);
    return harness::message_of<ConfigError>([&] { read_trained_images(folder / "images.json"); });
  };
  for (const std::string text :
       {"", "[]", R"({"channels": 3, "height": 4, "width": 4})",
        R"({"channels": 3, "height": 4, "width": 4, "classes": []})",
        R"({"channels": 9, "height": 4, "width": 4, "classes": ["a"]})",
        R"({"channels": 3, "height": 0, "width": 4, "classes": ["a"]})",
        R"({"channels": 3, "height": 99999999, "width": 4, "classes": ["a"]})",
        R"({"channels": 3, "height": 4, "width": 4, "classes": ["a\nb"]})"}) {
    EXPECT_NE(error_of(text).find("images.json"), std::string::npos) << text;
  }
  EXPECT_NE(
      harness::message_of<ConfigError>([&] { read_trained_images(folder / "none"); }).find("none"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::tasks

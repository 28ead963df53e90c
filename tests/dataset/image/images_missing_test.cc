#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/image_folder.h"

namespace trireme::dataset {
namespace {

TEST(Images, SayWhatToInstallWhenTheBuildLacksTheLibraries) {
  EXPECT_FALSE(images_available());
  const harness::TemporaryFolder folder;
  const auto error = harness::message_of<ConfigError>([&] { open_image_folder(folder.path()); });
  EXPECT_NE(error.find("install libpng-dev and libjpeg62-turbo-dev"), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset

#include "tests/dataset/data.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

TEST(JsonTokenizer, SaysWhatToInstallWhenTheBuildLacksPcre2) {
  EXPECT_FALSE(json_tokenizer_available());
  expect_config_error([] { make_json_tokenizer("{}", ""); }, {"libpcre2-dev", "libutf8proc-dev"});
  expect_config_error([] { make_json_tokenizer("{}", 0); }, {"libpcre2-dev"});
  expect_config_error([] { spelled_end_of_document("{}", 0); }, {"libpcre2-dev"});
}

}  // namespace
}  // namespace trireme::dataset

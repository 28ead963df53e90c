#include "tests/dataset/data.h"
#include "trireme/dataset/bpe.h"

namespace trireme::dataset {
namespace {

TEST(Bpe, SaysWhatToInstallWhenTheBuildLacksSentencePiece) {
  EXPECT_FALSE(bpe_available());
  const auto no_text = [] { return std::string(); };
  expect_config_error([&] { train_bpe(no_text, 1000); }, {"libsentencepiece-dev"});
  expect_config_error([&] { make_bpe_tokenizer(""); }, {"libsentencepiece-dev"});
}

}  // namespace
}  // namespace trireme::dataset

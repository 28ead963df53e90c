#include "trireme/train/task/data_identity.h"

#include <map>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(DataIdentity, IsTheSameOnAllRanksOrNamesOneThatDiffers) {
  for (const int other : {-1, 0, 1, 2}) {
    harness::run_ranks(3, [&](comm::Communicator& world) {
      const DataIdentity mine{
          .checksums = {{"index", "index"},
                        {"tokens", world.rank() == other ? "of another" : "tokens"},
                        {"tokenizer", "tokenizer"}}};
      const std::string error =
          harness::message_of<ConfigError>([&] { require_same_data(mine, "data/python", world); });
      const std::string expected = concat("the data data/python of rank ", other == 2 ? 2 : 1,
                                          " differs from that of rank 0");
      EXPECT_EQ(error.substr(0, expected.size()), other < 0 ? "" : expected);
      if (other >= 0) {
        EXPECT_NE(error.find("index, tokenizer and tokens"), std::string::npos) << error;
      }
    });
  }
}

// Sample i is [i, i] but for one changed value.
class Numbers : public dataset::Source {
 public:
  explicit Numbers(int64_t size, int64_t changed = -1) : size_(size), changed_(changed) {}
  int64_t size() const override { return size_; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    return {{"x", at::full({2}, index == changed_ ? -1 : index, at::kLong)}};
  }

 private:
  int64_t size_, changed_;
};

TEST(IdentifySamples, KnowsTheNumberOfSamplesAndTheirContent) {
  for (const int64_t size : {1, 2, 63, 64}) {
    const DataIdentity identity = identify_samples(Numbers(size));
    EXPECT_TRUE(identity.is_known());
    EXPECT_EQ(identity, identify_samples(Numbers(size)));
    EXPECT_EQ(to_text(identity), concat(size, " samples"));
    EXPECT_NE(identity, identify_samples(Numbers(size + 1)));
    for (int64_t changed = 0; changed < size; ++changed) {
      EXPECT_NE(identity, identify_samples(Numbers(size, changed))) << changed << " of " << size;
    }
  }
}

TEST(IdentifySamples, ReadsSixtyFourOfManySamples) {
  const int64_t size = (int64_t{1} << 62) + 5;
  EXPECT_EQ(identify_samples(Numbers(size)), identify_samples(Numbers(size)));
  EXPECT_NE(identify_samples(Numbers(size)), identify_samples(Numbers(size, 0)));
}

TEST(DataIdentity, OfSeveralPartsHasTheirNames) {
  const DataIdentity code{.checksums = {{"tokens", "c"}}, .counts = {{"num_tokens", 3}}};
  const DataIdentity web{.checksums = {{"tokens", "w"}}, .counts = {{"num_tokens", 4}}};
  DataIdentity both;
  add_part(both, "code", code);
  add_part(both, "web", web);
  EXPECT_EQ(both, (DataIdentity{.checksums = {{"code tokens", "c"}, {"web tokens", "w"}},
                                .counts = {{"num_tokens", 7}}}));
  DataIdentity one;
  add_part(one, "", code);
  EXPECT_EQ(one, code);
  DataIdentity other;
  add_part(other, "web", web);
  add_part(other, "wiki", code);
  EXPECT_EQ(parts_as_in(both, other).checksums,
            (std::map<std::string, std::string>{{"web tokens", "w"}}));
  EXPECT_TRUE(parts_as_in(both, other).counts.empty());
  EXPECT_EQ(parts_as_in(code, one), code);
  EXPECT_FALSE(parts_as_in(both, one).is_known());
  EXPECT_FALSE(parts_as_in(both, {}).is_known());
}

}  // namespace
}  // namespace trireme::train

#include "trireme/parallel/embedding/jagged_ids.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Numbers = std::vector<int64_t>;

at::Tensor numbers(const Numbers& values) { return at::tensor(values, at::kLong); }

const std::vector<TableConfig> kTables{{.name = "a", .rows = 5, .width = 1},
                                       {.name = "b", .rows = 9, .width = 1}};

TEST(JaggedIds, HaveTheIdsOfATableBySample) {
  const JaggedIds ids = jagged_ids(numbers({4, 1, 8, 7, 6}), numbers({2, 0, 1, 2}).view({2, 2}));
  EXPECT_EQ(ids.num_samples, 2);
  const TableIds second = view_table(ids, 1);
  EXPECT_EQ(Numbers(second.values.begin(), second.values.end()), (Numbers{8, 7, 6}));
  EXPECT_EQ(Numbers(second.offsets.begin(), second.offsets.end()), (Numbers{2, 3, 5}));
  check_ids(ids, kTables);
}

TEST(JaggedIds, MayHaveNoSamples) {
  const JaggedIds ids = jagged_ids(numbers({}), numbers({}).view({2, 0}));
  EXPECT_EQ(ids.num_samples, 0);
  EXPECT_TRUE(view_table(ids, 1).values.empty());
  check_ids(ids, kTables);
}

TEST(JaggedIds, LengthsMustAddUp) {
  EXPECT_THROW(jagged_ids(numbers({1, 2}), numbers({1, 2}).view({2, 1})), ConfigError);
  EXPECT_THROW(jagged_ids(numbers({1}), numbers({2, -1}).view({2, 1})), ConfigError);
  EXPECT_THROW(jagged_ids(numbers({1}), numbers({1})), ConfigError);
}

std::string refusal_of_ids(const JaggedIds& ids, const std::vector<TableConfig>& tables = kTables) {
  try {
    check_ids(ids, tables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(JaggedIds, ErrorsSayWhatDoesNotFit) {
  const JaggedIds good = jagged_ids(numbers({4, 8}), numbers({1, 1}).view({2, 1}));
  EXPECT_EQ(refusal_of_ids(good), "");
  JaggedIds bad = good;
  bad.values = at::tensor({4, 8}, at::kInt);
  EXPECT_EQ(
      refusal_of_ids(bad),
      "the values of embedding ids must be contiguous int64 numbers [n] in the host's memory");
  bad = good;
  bad.num_samples = int64_t{1} << 62;
  EXPECT_EQ(refusal_of_ids(bad),
            "embedding ids have 4611686018427387904 samples and 2 ids; at most 2147483647 of each "
            "are possible on a rank");
  bad = good;
  bad.offsets = numbers({0, 2});
  EXPECT_EQ(refusal_of_ids(bad), "embedding ids have 2 offsets; 2 tables and 1 samples need 3");
  bad = good;
  bad.offsets = numbers({0, 3, 2});
  EXPECT_EQ(refusal_of_ids(bad),
            "offsets of embedding ids must rise from 0 to the number of ids, 2; they begin with 0 "
            "and end with 2");
  std::vector<TableConfig> weighted = kTables;
  weighted[1].is_weighted = true;
  EXPECT_EQ(refusal_of_ids(good, weighted),
            "an embedding table is weighted, but the ids have no weights");
  bad = good;
  bad.weights = at::ones({3});
  EXPECT_EQ(refusal_of_ids(bad, weighted),
            "weights of embedding ids have shape [3]; the ids have [2]");
  bad = good;
  bad.values = numbers({4, 9});
  EXPECT_EQ(refusal_of_ids(bad),
            "embedding table \"b\": sample 0 of this rank has the id 9; expected 0 to 8");
}

// The sample is the one that has the id, past samples without ids.
TEST(JaggedIds, AnErrorNamesTheSample) {
  const JaggedIds ids =
      jagged_ids(numbers({1, 5, 2}), numbers({0, 1, 0, 1, 0, 0, 0, 0, 1, 0}).view({2, 5}));
  EXPECT_EQ(refusal_of_ids(ids),
            "embedding table \"a\": sample 3 of this rank has the id 5; expected 0 to 4");
}

}  // namespace
}  // namespace trireme::parallel

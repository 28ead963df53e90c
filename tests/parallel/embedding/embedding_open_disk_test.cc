// Open vocabularies larger than memory: the bits are those of tables in memory.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kSamples = 24;
constexpr size_t kSteps = 16;

std::vector<TableConfig> large_tables() {
  const auto open = [](const char* name, int64_t width, int64_t max_rows, FullTable when_full) {
    TableConfig table{.name = name, .rows = kOpenRows, .width = width};
    table.is_open = true;
    table.open_max_rows = max_rows;
    table.open_when_full = when_full;
    return table;
  };
  std::vector<TableConfig> tables = {open("a", 3, 0, FullTable::kEvict),
                                     open("b", 5, 60, FullTable::kEvict),
                                     open("c", 2, 60, FullTable::kEvictRarest)};
  tables[0].open_expire_steps = 9;
  tables[2].open_expire_steps = 12;
  tables[2].open_min_uses = 2;
  return tables;
}

// Some ids are used again and again, others once or twice.
JaggedIds draw_skewed(Draw& draw) {
  std::vector<int64_t> ids, lengths;
  for (int64_t i = 0; i < 3 * kSamples; ++i) {
    lengths.push_back(draw.below<int64_t>(3));
    for (int64_t k = 0; k < lengths.back(); ++k) {
      const auto number = draw.below<int64_t>(draw.below<int64_t>(2) == 0 ? 8 : 300);
      ids.push_back((number - 100) * 1'000'000'007);
    }
  }
  return jagged_ids(at::tensor(ids, at::kLong), at::tensor(lengths, at::kLong).view({3, kSamples}),
                    at::ones({std::ssize(ids)}));
}

class OpenDiskTables : public testing::TestWithParam<RowRule> {
 protected:
  OpenDiskTables() {
    Draw draw(6);
    for (size_t step = 0; step < kSteps; ++step) batches_.push_back(draw_skewed(draw));
    EmbeddingTables tables(large_tables(), nullptr, options());
    run_steps(tables, 0, kSteps, nullptr);
    for (const TableTensor& tensor : tables.open_state()) expected_[tensor.name] = tensor.local;
  }
  EmbeddingOptions options() const {
    return {.dtype = at::kFloat,
            .seed = 5,
            .optimizer = {.rule = GetParam(), .learning_rate = 0.1, .initial_accumulator = 0.1}};
  }
  // Runs steps [begin, end), each batch's ids being sent before the one before is finished.
  void run_steps(EmbeddingTables& tables, size_t begin, size_t end,
                 comm::Communicator* group) const {
    const int rank = group == nullptr ? 0 : group->rank();
    const int size = group == nullptr ? 1 : group->size();
    const int64_t first = kSamples * rank / size, last = kSamples * (rank + 1) / size;
    const auto ids = [&](size_t step) { return samples_of(batches_[step], 3, first, last); };
    StartedLookUp started = tables.start(ids(begin));
    for (size_t step = begin; step < end; ++step) {
      const StartedLookUp now = started;
      if (step + 1 < end) started = tables.start(ids(step + 1));
      const Embeddings outputs = tables.finish(now);
      const at::Tensor samples =
          at::arange(first, last).unsqueeze(1).add(static_cast<int64_t>(step));
      outputs.pooled_BW.backward((samples * at::arange(10)).sin().to(at::kFloat));
    }
  }
  void expect_rows(EmbeddingTables& tables) const {
    const std::vector<TableTensor> state = tables.open_state();
    EXPECT_EQ(state.size(), expected_.size());
    for (const TableTensor& tensor : state) {
      const at::Tensor& whole = expected_.at(tensor.name);
      ASSERT_EQ(at::IntArrayRef(tensor.layout.shape()), whole.sizes()) << tensor.name;
      const at::Tensor values = values_of(tensor);
      assert_same_bits(values, box_of(whole, tensor.layout, tensor.rank), tensor.name);
      if (!tensor.stored || values.size(0) < 4) continue;
      const std::vector<int64_t> some{1, values.size(0) - 1};
      assert_same_bits(tensor.stored->read(some),
                       values.index_select(0, at::tensor(some, at::kLong)), "some rows");
    }
  }

  TemporaryFolder folder_;
  std::vector<JaggedIds> batches_;
  std::map<std::string, at::Tensor> expected_;
};

TEST_P(OpenDiskTables, HaveTheBitsOfTablesInMemory) {
  const OneThread one_thread;
  EXPECT_EQ(expected_.at("b.ids").numel(), 60);
  EXPECT_GT(expected_.at("a.ids").numel(), 60);
  Draw draw(7);
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t memory : {int64_t{40}, int64_t{100}, int64_t{1} << 20}) {
      const auto tables = on_disk(place(draw, large_tables(), world, /*may_columns=*/false),
                                  options(), memory, folder_.path());
      run_ranks(world, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options());
        run_steps(many, 0, kSteps, &group);
        if (world == 1 && memory == 40) EXPECT_LT(many.hit_rate(0), 1);
        expect_rows(many);
        EXPECT_EQ(many.num_steps(), std::ssize(batches_));
      });
    }
  }
}

// Saved from a disk on 3 ranks, continued on 2 with other memory, or without a disk.
TEST_P(OpenDiskTables, ContinueAtAnotherPlacement) {
  const OneThread one_thread;
  constexpr size_t kHalf = kSteps / 2;
  std::vector<TableConfig> by_rows = on_disk(large_tables(), options(), 40, folder_.path());
  for (TableConfig& table : by_rows) table.placement = mesh::Placement::sharded(0);
  std::vector<std::map<std::string, at::Tensor>> parts(3);
  run_ranks(3, [&](comm::Communicator& group) {
    EmbeddingTables tables(by_rows, &group, options());
    run_steps(tables, 0, kHalf, &group);
    for (const TableTensor& tensor : tables.open_state()) {
      EXPECT_EQ(tensor.stored != nullptr, tensor.name.ends_with(".weight")) << tensor.name;
      parts[static_cast<size_t>(group.rank())][tensor.name] = values_of(tensor);
    }
  });
  const auto whole = [&](const std::string& name) {
    return at::cat({parts[0].at(name), parts[1].at(name), parts[2].at(name)});
  };
  Draw draw(8);
  for (const int64_t memory : {0, 45}) {
    const auto tables = on_disk(place(draw, large_tables(), 2, /*may_columns=*/false), options(),
                                memory, folder_.path());
    for (const bool was_used : {false, true}) {
      run_ranks(2, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options());
        if (was_used) run_steps(many, 0, 3, &group);
        std::vector<TableTensor> state = many.open_state_to_load(whole);
        for (const TableTensor& tensor : state) {
          const at::Tensor values =
              box_of(whole(tensor.name), tensor.layout, tensor.rank).contiguous();
          if (tensor.stored) {
            tensor.stored->write(0, values);
          } else {
            tensor.local.copy_(values);
          }
        }
        many.load_open_state(state);
        many.set_num_steps(kHalf);
        run_steps(many, kHalf, kSteps, &group);
        expect_rows(many);
      });
    }
  }
  // Tensors in memory may be given to a table on a disk.
  EmbeddingTables one(on_disk(large_tables(), options(), 60, folder_.path()), nullptr, options());
  std::vector<TableTensor> state = one.open_state_to_load(whole);
  for (TableTensor& tensor : state) tensor.local = whole(tensor.name);
  one.load_open_state(state);
  one.set_num_steps(kHalf);
  run_steps(one, kHalf, kSteps, nullptr);
  expect_rows(one);
}

INSTANTIATE_TEST_SUITE_P(EachRule, OpenDiskTables, testing::ValuesIn(kEachRule), rule_name);

TEST(EmbeddingOpenDisk, SaysThatTheFolderIsTooSmallForTheLimit) {
  const TemporaryFolder folder;
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kSgd}};
  auto tables = on_disk({large_tables()[1]}, options, 10, folder.path());
  tables[0].open_max_rows = int64_t{1} << 30;
  tables[0].width = 1 << 20;
  EXPECT_THAT(message_of<ConfigError>([&] { EmbeddingTables(tables, nullptr, options); }),
              testing::AllOf(testing::HasSubstr("tables.folder"), testing::HasSubstr("no room for"),
                             testing::HasSubstr("the rows of embedding table \"b\"")));
}

TEST(EmbeddingOpenDisk, SaysThatABatchNeedsMoreRowsThanMemoryHas) {
  const TemporaryFolder folder;
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kSgd}};
  EmbeddingTables tables(on_disk({large_tables()[1]}, options, 3, folder.path()), nullptr, options);
  tables.look_up(one_sample({1, 2, 3})).pooled_BW.sum().backward();
  EXPECT_THAT(
      message_of<ConfigError>([&] {
        tables.look_up(one_sample({1, 2, 4, 5}));
      }),
      testing::AllOf(testing::HasSubstr("\"b\""), testing::HasSubstr("raise tables.memory")));
}

// Of this process's unnamed files in a folder.
uintmax_t file_bytes(const std::filesystem::path& folder) {
  uintmax_t sum = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;  // of the iterator's own
    const std::string target = std::filesystem::read_symlink(each.path(), error).string();
    if (target.starts_with(folder.string())) sum += std::filesystem::file_size(each.path());
  }
  return sum;
}

// Each step's rows are dropped some steps later, so few are there, of 10,000 that come and go.
TEST(EmbeddingOpenDisk, UsesTheRoomOfDroppedRowsAgain) {
  const TemporaryFolder folder;
  const EmbeddingOptions options{.optimizer = {.rule = RowRule::kAdaGrad}};
  TableConfig table = large_tables()[0];
  table.width = 256;
  table.open_expire_steps = 3;
  EmbeddingTables tables(on_disk({table}, options, 30, folder.path()), nullptr, options);
  const uintmax_t before = file_bytes(folder.path());
  EXPECT_GT(before, 0U);
  for (int64_t step = 0; step < 400; ++step) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 25; ++i) ids.push_back(25 * step + i);
    tables.look_up(one_sample(ids)).pooled_BW.sum().backward();
  }
  EXPECT_LT(file_bytes(folder.path()), before + (1 << 20)) << "they had 20 MB";
  EXPECT_EQ(tables.open_counts().rows, 75);
  EXPECT_EQ(tables.open_counts().expired, 400 * 25 - 75);
  EXPECT_LE(tables.memory_bytes(), 30 * 8 * 256);
}

}  // namespace
}  // namespace trireme::parallel

// Tables larger than memory: the bits are those of tables in memory.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr int64_t kRows = 400, kSamples = 24;
constexpr size_t kSteps = 12;

std::vector<TableConfig> large_tables() {
  return {{.name = "a", .rows = kRows, .width = 3},
          {.name = "b", .rows = kRows, .width = 5, .pooling = Pooling::kMean}};
}

// Some rows are used again and again, others once.
JaggedIds draw_skewed(Draw& draw) {
  std::vector<int64_t> ids, lengths;
  for (int64_t i = 0; i < 2 * kSamples; ++i) {
    lengths.push_back(draw.below<int64_t>(3));
    for (int64_t k = 0; k < lengths.back(); ++k) {
      ids.push_back(draw.below<int64_t>(draw.below<int64_t>(2) == 0 ? 8 : kRows));
    }
  }
  return jagged_ids(at::tensor(ids, at::kLong), at::tensor(lengths, at::kLong).view({2, kSamples}),
                    at::ones({std::ssize(ids)}));
}

class DiskTables : public testing::TestWithParam<RowRule> {
 protected:
  EmbeddingOptions options() const {
    return {.dtype = at::kFloat,
            .seed = 5,
            .optimizer = {.rule = GetParam(), .learning_rate = 0.1, .initial_accumulator = 0.1}};
  }
  // With memory for so many whole rows of each table; 0: all.
  std::vector<TableConfig> on_disk(std::vector<TableConfig> tables, int64_t num_rows) const {
    return harness::on_disk(std::move(tables), options(), num_rows, folder_.path());
  }
  // Runs steps [begin, end), each batch's ids being sent before the one before is finished.
  void run_steps(EmbeddingTables& tables, const std::vector<JaggedIds>& batches, size_t begin,
                 size_t end, comm::Communicator& group) const {
    const int64_t first = kSamples * group.rank() / group.size();
    const int64_t last = kSamples * (group.rank() + 1) / group.size();
    const auto ids = [&](size_t step) { return samples_of(batches[step], 2, first, last); };
    StartedLookUp started = tables.start(ids(begin));
    for (size_t step = begin; step < end; ++step) {
      const StartedLookUp now = started;
      if (step + 1 < end) started = tables.start(ids(step + 1));
      const Embeddings outputs = tables.finish(now);
      const at::Tensor samples = at::arange(first, last).unsqueeze(1).add(step);
      outputs.pooled_BW.backward((samples * at::arange(8)).sin().to(at::kFloat));
    }
  }

  TemporaryFolder folder_;
};

TEST_P(DiskTables, HaveTheBitsOfTablesInMemory) {
  const OneThread one_thread;
  Draw draw(6);
  std::vector<JaggedIds> batches;
  for (size_t step = 0; step < kSteps; ++step) batches.push_back(draw_skewed(draw));
  std::map<std::string, at::Tensor> expected;
  run_ranks(1, [&](comm::Communicator& group) {
    EmbeddingTables tables(large_tables(), &group, options());
    run_steps(tables, batches, 0, kSteps, group);
    EXPECT_EQ(tables.hit_rate(0), 1);
    for (const TableTensor& tensor : tables.state()) expected[tensor.name] = tensor.local.clone();
  });
  for (const int world : {1, 2, 3, 4}) {
    for (const int64_t memory : {50, 100, 10000}) {
      const auto tables = on_disk(place(draw, large_tables(), world, true), memory);
      run_ranks(world, [&](comm::Communicator& group) {
        EmbeddingTables many(tables, &group, options());
        run_steps(many, batches, 0, kSteps, group);
        if (world == 1 && memory == 50) EXPECT_LT(many.hit_rate(0), 1);
        expect_state(many, expected);
        EXPECT_EQ(many.num_steps(), std::ssize(batches));
      });
    }
  }
}

// Saved from a disk by rows on 3 ranks, continued on 2 with other memory, or without a disk.
TEST_P(DiskTables, ContinueAtAnotherPlacement) {
  const OneThread one_thread;
  constexpr size_t kHalf = kSteps / 2;
  Draw draw(7);
  std::vector<JaggedIds> batches;
  for (size_t step = 0; step < kSteps; ++step) batches.push_back(draw_skewed(draw));
  std::map<std::string, at::Tensor> expected, half;
  run_ranks(1, [&](comm::Communicator& group) {
    EmbeddingTables tables(large_tables(), &group, options());
    run_steps(tables, batches, 0, kSteps, group);
    for (const TableTensor& tensor : tables.state()) expected[tensor.name] = tensor.local.clone();
  });
  for (const TableTensor& tensor : EmbeddingTables(large_tables(), nullptr, options()).state()) {
    half[tensor.name] = at::empty_like(tensor.local);
  }
  std::vector<TableConfig> by_rows = on_disk(large_tables(), 50);
  for (TableConfig& table : by_rows) table.placement = mesh::Placement::sharded(0);
  run_ranks(3, [&](comm::Communicator& group) {
    EmbeddingTables tables(by_rows, &group, options());
    run_steps(tables, batches, 0, kHalf, group);
    for (const TableTensor& tensor : tables.state()) {
      const mesh::Box box = tensor.layout.local_box(tensor.rank);
      half.at(tensor.name).narrow(0, box.offset[0], box.size[0]).copy_(values_of(tensor));
    }
  });
  for (const int64_t memory : {0, 60}) {
    const auto tables = on_disk(place(draw, large_tables(), 2, true), memory);
    run_ranks(2, [&](comm::Communicator& group) {
      EmbeddingTables many(tables, &group, options());
      for (const TableTensor& tensor : many.state()) {
        const at::Tensor values =
            box_of(half.at(tensor.name), tensor.layout, tensor.rank).contiguous();
        if (tensor.stored) {
          tensor.stored->write(0, values);
        } else {
          tensor.local.copy_(values);
        }
      }
      many.set_num_steps(kHalf);
      run_steps(many, batches, kHalf, kSteps, group);
      expect_state(many, expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(EachRule, DiskTables, testing::ValuesIn(kEachRule), rule_name);

}  // namespace
}  // namespace trireme::parallel

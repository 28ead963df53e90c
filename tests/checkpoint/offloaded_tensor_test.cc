// Checkpoints of tensors that are not in memory.
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Keeps a tensor where nobody sees it, and counts.
class Hidden : public OffloadedTensor {
 public:
  explicit Hidden(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor read() const override {
    if (fails) throw Error("the disk is gone");
    return tensor_.clone();
  }
  void write(const at::Tensor& values) override {
    if (fails) throw Error("the disk is gone");
    ++num_writes;
    ASSERT_TRUE(values.is_contiguous() && values.device().is_cpu());
    tensor_.copy_(values);
  }
  bool fails = false;
  int num_writes = 0;

 private:
  at::Tensor tensor_;
};

// The entry without its tensor in memory.
std::shared_ptr<Hidden> offload(Entry& entry) {
  auto hidden = std::make_shared<Hidden>(entry.local.clone());
  entry.local = entry.local.to(at::kMeta);
  entry.offloaded = hidden;
  return hidden;
}

const std::vector<Global>& globals_to_offload() {
  static const std::vector<Global> globals = {
      {"w", random_tensor("w", {5, 3}, at::kFloat),
       mesh::Layout({5, 3}, {{"shard", 2}}, {mesh::Placement::sharded(0)})},
      {"b", random_tensor("b", {3}, at::kDouble), mesh::Layout({3}, {{"shard", 2}})},
      {"none", random_tensor("none", {0}, at::kFloat), mesh::Layout({0}, {{"shard", 2}})}};
  return globals;
}

TEST(Checkpoint, TensorsElsewhereGiveTheFilesOfTensorsInMemory) {
  const TemporaryFolder folder;
  save_all(folder / "memory", 1, globals_to_offload(), 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    auto entries = parts(globals_to_offload(), world.rank());
    for (Entry& entry : entries) offload(entry);
    save(folder / "elsewhere", 1, entries, R"({"seed":1})", world, kFast);
  });
  for (const auto& item : fs::directory_iterator(folder / "memory" / "step-000001")) {
    EXPECT_EQ(read_file(folder / "elsewhere" / "step-000001" / item.path().filename()),
              read_file(item.path()))
        << item.path();
  }
  expect_loads(folder / "elsewhere" / "step-000001", globals_to_offload(), 2);
}

TEST(Checkpoint, TensorsElsewhereAreFilledOnce) {
  const TemporaryFolder folder;
  save_all(folder.path(), 1, globals_to_offload(), 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const auto expected = parts(globals_to_offload(), world.rank());
    auto entries = expected;
    std::vector<std::shared_ptr<Hidden>> hidden;
    for (Entry& entry : entries) {
      entry.local = at::zeros_like(entry.local);
      hidden.push_back(offload(entry));
    }
    load(folder / "step-000001", entries, world);
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(hidden[i]->num_writes, 1);
      harness::assert_same_bits(hidden[i]->read(), expected[i].local, entries[i].name);
    }
  });
}

// A tensor that is never whole in memory.
class ByRows : public OffloadedTensor {
 public:
  explicit ByRows(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor read() const override { throw InternalError("all rows at once"); }
  void write(const at::Tensor&) override { throw InternalError("all rows at once"); }
  bool goes_by_rows() const override { return true; }
  at::Tensor read_rows(int64_t begin, int64_t end) const override {
    EXPECT_LE(end - begin, most_rows);
    return tensor_.slice(0, begin, end).clone();
  }
  void write_rows(int64_t begin, const at::Tensor& values) override {
    num_written += values.size(0);
    tensor_.narrow(0, begin, values.size(0)).copy_(values);
  }
  std::vector<mesh::Range> wanted_rows(int64_t num_rows) const override {
    return wanted ? *wanted : OffloadedTensor::wanted_rows(num_rows);
  }
  const at::Tensor& tensor() const { return tensor_; }
  std::optional<std::vector<mesh::Range>> wanted;
  int64_t most_rows = std::numeric_limits<int64_t>::max();
  int64_t num_written = 0;

 private:
  at::Tensor tensor_;
};

std::shared_ptr<ByRows> offload_by_rows(Entry& entry) {
  auto rows = std::make_shared<ByRows>(entry.local.clone());
  entry.local = entry.local.to(at::kMeta);
  entry.offloaded = rows;
  return rows;
}

// Of at most `most_rows` at a time.
void expect_the_files_of_tensors_in_memory(const Global& global, int num_ranks, int64_t most_rows) {
  const TemporaryFolder folder;
  const std::vector<Global> globals{global};
  save_all(folder / "memory", 1, globals, num_ranks);
  harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
    auto entries = parts(globals, world.rank());
    for (Entry& entry : entries) offload_by_rows(entry)->most_rows = most_rows;
    save(folder / "elsewhere", 1, entries, R"({"seed":1})", world, kFast);
  });
  for (const auto& item : fs::directory_iterator(folder / "memory" / "step-000001")) {
    EXPECT_EQ(read_file(folder / "elsewhere" / "step-000001" / item.path().filename()),
              read_file(item.path()))
        << item.path();
  }
}

// Chunks end within rows, and two rows have parts of some.
TEST(Checkpoint, RowsLongerThanChunksAreReadTwoAtATime) {
  const std::vector<int64_t> shape{7, 700'000};  // 2.8 MB
  expect_the_files_of_tensors_in_memory(
      {"rows", at::arange(shape[0] * shape[1], at::kFloat).view(shape),
       mesh::Layout(shape, {{"shard", 2}}, {mesh::Placement::sharded(0)})},
      2, 2);
}

// Rows of 64 KiB: 16 in a chunk of 1 MiB, and some hundred on each rank.
Global long_global(const mesh::Placement& placement, int num_ranks) {
  const std::vector<int64_t> shape{700, 1 << 14};
  return {"rows", at::arange(shape[0] * shape[1], at::kFloat).view(shape),
          mesh::Layout(shape, {{"shard", num_ranks}}, {placement})};
}

TEST(Checkpoint, TensorsThatGoByRowsGiveTheFilesOfTensorsInMemory) {
  expect_the_files_of_tensors_in_memory(
      long_global(mesh::Placement::sharded(0, {0, 611, 650, 700}), 3), 3, 16);
}

TEST(Checkpoint, TensorsThatGoByRowsAreFilledAtAnyLayout) {
  const TemporaryFolder folder;
  const std::vector<Global> saved{long_global(mesh::Placement::sharded(0), 3)};
  save_all(folder.path(), 1, saved, 3);
  for (const mesh::Placement& placement :
       {mesh::Placement::sharded(0, {0, 513, 700}), mesh::Placement::sharded(1),
        mesh::Placement::sharded(0, {0, 700, 700}), mesh::Placement::replicated()}) {
    const std::vector<Global> wanted{long_global(placement, 2)};
    harness::run_ranks(2, [&](comm::Communicator& world) {
      const auto expected = parts(wanted, world.rank());
      auto entries = expected;
      entries[0].local = at::zeros_like(entries[0].local);
      const auto rows = offload_by_rows(entries[0]);
      load(folder / "step-000001", entries, world);
      EXPECT_EQ(rows->num_written, expected[0].local.size(0));
      harness::assert_same_bits(rows->tensor(), expected[0].local, "rows");
    });
  }
}

TEST(Checkpoint, OnlyTheRowsThatAreWantedAreRead) {
  const TemporaryFolder folder;
  const std::vector<Global> saved{long_global(mesh::Placement::sharded(0), 3)};
  save_all(folder.path(), 1, saved, 3);
  const std::vector<Global> wanted{long_global(mesh::Placement::sharded(0), 2)};
  harness::run_ranks(2, [&](comm::Communicator& world) {
    auto entries = parts(wanted, world.rank());
    const at::Tensor all = entries[0].local;
    entries[0].local = at::zeros_like(all);
    const auto rows = offload_by_rows(entries[0]);
    rows->wanted = {{5, 40}, {45, 1}, {300, 50}};
    load(folder / "step-000001", entries, world);
    EXPECT_EQ(rows->num_written, 91);
    at::Tensor expected = at::zeros_like(all);
    for (const mesh::Range& range : *rows->wanted) {
      expected.narrow(0, range.offset, range.size).copy_(all.narrow(0, range.offset, range.size));
    }
    harness::assert_same_bits(rows->tensor(), expected, "rows");
  });
}

TEST(Checkpoint, ATensorElsewhereThatCannotBeFilledFailsTheLoadOnAllRanks) {
  const TemporaryFolder folder;
  save_all(folder.path(), 1, globals_to_offload(), 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    auto entries = parts(globals_to_offload(), world.rank());
    for (Entry& entry : entries) offload(entry)->fails = world.rank() == 1;
    EXPECT_THAT(harness::message_of([&] { load(folder / "step-000001", entries, world); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("the disk is gone")));
  });
}

TEST(Checkpoint, ATensorElsewhereThatCannotBeReadFailsTheSaveOnAllRanks) {
  const TemporaryFolder folder;
  save_all(folder.path(), 1, globals_to_offload(), 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    auto entries = parts(globals_to_offload(), world.rank());
    for (Entry& entry : entries) offload(entry)->fails = world.rank() == 1;
    EXPECT_THAT(harness::message_of([&] { save(folder.path(), 2, entries, "{}", world, kFast); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("the disk is gone")));
  });
  EXPECT_THAT(list(folder.path()), ElementsAre(folder / "step-000001"));
  expect_loads(folder / "step-000001", globals_to_offload(), 2);
}

}  // namespace
}  // namespace trireme::checkpoint

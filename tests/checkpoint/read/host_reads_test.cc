#include "trireme/checkpoint/read/host_reads.h"

#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/comm/objects.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Eq;
using ::testing::Gt;
using ::testing::HasSubstr;

// Cheaper than random bits.
at::Tensor numbers(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  const int64_t count = c10::multiply_integers(shape);
  return at::arange(count, at::kInt).mul_(1'000'003).view(shape).to(dtype);
}

// Of several batches, with chunks that no rank of two fills alone: rows of 4 KiB and of 12 bytes.
std::vector<Global> model_of(int ranks, const std::vector<mesh::Placement>& placements) {
  std::vector<Global> globals;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, auto dtype) {
    const mesh::Placement placement = placements[globals.size() % placements.size()];
    globals.push_back({name, numbers(shape, dtype), {shape, {{"data", ranks}}, {placement}}});
  };
  add("a", {1200, 1024}, at::kInt);
  add("b", {9, 3}, at::kInt);
  add("c", {700, 1024}, at::kShort);
  add("d", {4, 300'000}, at::kInt);  // rows of more than a chunk
  return globals;
}
std::vector<Global> replicated_model(int ranks) {
  return model_of(ranks, {mesh::Placement::replicated()});
}

int64_t num_bytes(std::span<const Global> globals) {
  int64_t total = 0;
  for (const Global& global : globals) total += static_cast<int64_t>(global.tensor.nbytes());
  return total;
}

// Loads, compares every bit and returns what each rank has read from files.
std::vector<int64_t> load_and_count(const fs::path& folder, std::span<const Global> globals,
                                    comm::Communicator& world) {
  const std::vector<Entry> expected = parts(globals, world.rank());
  std::vector<Entry> entries = parts(globals, world.rank());
  for (Entry& entry : entries) entry.local.zero_();
  int64_t mine = 0;
  load(folder, entries, world, {.num_bytes_read = &mine});
  for (size_t i = 0; i < entries.size(); ++i)
    harness::assert_same_bits(entries[i].local, expected[i].local, entries[i].name);
  return comm::all_gather_numbers(world, mine);
}
int64_t sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

class HostReadsTest : public ::testing::Test {
 protected:
  HostReadsTest() { save_all(root_.path(), 1, model_, 1); }
  fs::path folder() const { return root_ / "step-000001"; }

  TemporaryFolder root_;
  std::vector<Global> model_ = replicated_model(1);
};

TEST_F(HostReadsTest, ThreadsReadEveryByteOnce) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const auto read = load_and_count(folder(), replicated_model(size), world);
      EXPECT_EQ(sum(read), num_bytes(model_)) << size;
      EXPECT_THAT(read, Each(Gt(num_bytes(model_) / (size + 1))));
    });
  }
}

TEST_F(HostReadsTest, ProcessesReadEveryByteOnce) {
  const auto ended = harness::fork_ranks(3, [&](comm::Communicator& world) {
    EXPECT_EQ(sum(load_and_count(folder(), replicated_model(3), world)), num_bytes(model_));
  });
  EXPECT_THAT(ended, Each(Eq(0)));
}

// Pretended hosts have one identity: each text says where its rank is.
TEST_F(HostReadsTest, EachHostReadsEveryByteOnce) {
  const std::vector<int> hosts{0, 1, 1, 0};
  const Manifest manifest = read_manifest(folder());
  comm::run_hierarchical_ranks(hosts, [&](comm::Communicator& world) {
    std::vector<Entry> entries = parts(replicated_model(4), world.rank());
    for (Entry& entry : entries) entry.local.zero_();
    const std::string mine = concat("host ", hosts[static_cast<size_t>(world.rank())], ", ",
                                    HostReads::describe(folder(), manifest, entries, world));
    const HostReads reads(manifest, comm::all_gather_strings(world, mine), world);
    Shards shards(folder(), manifest);
    run_or_throw(world, [&](const Peers& peers) { reads.read(entries, shards, world, peers); });
    for (size_t i = 0; i < entries.size(); ++i)
      harness::assert_same_bits(entries[i].local, model_[i].tensor, model_[i].name);
    const auto read = comm::all_gather_numbers(world, shards.num_bytes_read());
    EXPECT_EQ(read[0] + read[3], num_bytes(model_));
    EXPECT_EQ(read[1] + read[2], num_bytes(model_));
  });
}

#ifdef TRIREME_HAVE_GLOO
TEST_F(HostReadsTest, WithoutSharedMemoryEveryRankReadsWhatItWants) {
  comm::run_gloo_ranks(2, [&](comm::Communicator& world) {
    EXPECT_THAT(load_and_count(folder(), replicated_model(2), world), Each(num_bytes(model_)));
  });
}
#endif

// Rows, columns and whole tensors: some chunks are one rank's, others those of all.
TEST_F(HostReadsTest, AnyLayoutReadsEveryByteOnce) {
  const std::vector<mesh::Placement> kinds{mesh::Placement::sharded(0), mesh::Placement::sharded(1),
                                           mesh::Placement::replicated()};
  for (const int saved : {1, 3}) {
    const TemporaryFolder root;
    save_all(root.path(), 1, model_of(saved, kinds), saved);
    for (const int size : {2, 3}) {
      harness::run_ranks(size, [&](comm::Communicator& world) {
        for (size_t first = 0; first < kinds.size(); ++first) {
          std::vector<mesh::Placement> turned = kinds;
          std::ranges::rotate(turned, turned.begin() + static_cast<int64_t>(first));
          const auto read = load_and_count(root / "step-000001", model_of(size, turned), world);
          EXPECT_EQ(sum(read), num_bytes(model_));
        }
      });
    }
  }
}

TEST_F(HostReadsTest, CompressedChunksAreUnpackedOnce) {
  if (!has_zstd()) return;
  std::vector<Global> model{{"w", at::arange(1'000'000, at::kInt), mesh::Layout({1'000'000}, {})}};
  SaveOptions options = kFast;
  options.compression = Compression::kZstd;
  save_all(root_.path(), 2, model, 1, options);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    EXPECT_EQ(sum(load_and_count(root_ / "step-000002", model, world)), num_bytes(model));
  });
}

class InMemory : public OffloadedTensor {
 public:
  explicit InMemory(at::Tensor values) : values_(std::move(values)) {}
  at::Tensor read() const override { return values_; }
  void write(const at::Tensor& values) override { values_.copy_(values); }

 private:
  at::Tensor values_;
};
// The entries of rank 1 are offloaded, so that it reads all of them itself.
TEST_F(HostReadsTest, OffloadedTensorsAreReadByTheirRank) {
  harness::run_ranks(3, [&](comm::Communicator& world) {
    std::vector<Entry> entries = parts(model_, 0);
    std::vector<at::Tensor> loaded;
    for (Entry& entry : entries) {
      loaded.push_back(at::zeros_like(entry.local));
      entry.local = loaded.back();
      if (world.rank() != 1) continue;
      entry.local = at::empty_like(loaded.back(), at::TensorOptions().device(at::kMeta));
      entry.offloaded = std::make_shared<InMemory>(loaded.back());
    }
    int64_t mine = 0;
    load(folder(), entries, world, {.num_bytes_read = &mine});
    for (size_t i = 0; i < loaded.size(); ++i)
      harness::assert_same_bits(loaded[i], model_[i].tensor, model_[i].name);
    const auto read = comm::all_gather_numbers(world, mine);
    EXPECT_EQ(read[1], num_bytes(model_));
    EXPECT_EQ(read[0] + read[2], num_bytes(model_));
  });
}

// Whoever reads the damaged chunk, all ranks fail alike, nobody waits, and the group lives on.
TEST_F(HostReadsTest, DamageThatTheReaderMeetsStopsAllRanks) {
  const std::vector<Global> model = replicated_model(1);
  SaveOptions apart = kFast;
  apart.incremental = false;
  save_all(root_.path(), 2, model, 1, apart);
  const fs::path file = root_ / "step-000002" / "rank-000-of-001.safetensors";
  const std::string content = read_file(file);
  for (const size_t place : {content.size() - 1, content.size() / 2, content.size() / 3}) {
    overwrite(file, with_flipped_bit(content, place * 8));
    harness::run_ranks(3, [&](comm::Communicator& world) {
      std::vector<Entry> entries = parts(model, 0);
      const std::string error =
          checkpoint_error([&] { load(root_ / "step-000002", entries, world); });
      EXPECT_THAT(error, AllOf(HasSubstr("rank "), HasSubstr(file.string()), HasSubstr("damaged")));
      EXPECT_EQ(comm::all_gather_strings(world, error), std::vector<std::string>(3, error));
      EXPECT_EQ(sum(load_and_count(folder(), replicated_model(3), world)), num_bytes(model));
    });
  }
}

// Ranks that see other checkpoints under one path do not read for each other.
TEST_F(HostReadsTest, RanksWithOtherManifestsReadAlone) {
  const TemporaryFolder other;
  save_all(other.path(), 1, model_, 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const fs::path path = world.rank() == 0 ? folder() : other / "step-000001";
    EXPECT_THAT(load_and_count(path, replicated_model(2), world), Each(num_bytes(model_)));
  });
}

}  // namespace
}  // namespace trireme::checkpoint

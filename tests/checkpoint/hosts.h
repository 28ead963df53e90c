// Ranks, as threads, on several hosts: each host is a folder of its own.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"

namespace trireme::checkpoint {

class Hosts {
 public:
  // host_of_rank: such as {0, 0, 1}
  explicit Hosts(std::vector<int> host_of_rank) : host_of_rank_(std::move(host_of_rank)) {}

  int num_ranks() const { return static_cast<int>(host_of_rank_.size()); }
  std::filesystem::path root(int host) const { return folder_ / ("host" + std::to_string(host)); }
  std::filesystem::path root_of(const comm::Communicator& world) const {
    return root(host_of_rank_[world.rank()]);
  }
  void lose(int host) const { std::filesystem::remove_all(root(host)); }

  void save(int64_t step, std::span<const Global> globals, SaveOptions options) const {
    harness::run_ranks(num_ranks(), [&](comm::Communicator& world) {
      SaveOptions own = options;
      own.sites = find_sites(root_of(world), world);
      checkpoint::save(root_of(world), step, parts(globals, world.rank()), R"({"seed":1})", world,
                       own);
    });
  }

  // As a run does after it has begun again, each rank with its part of `globals`.
  // Returns what it found.
  FoundCheckpoint load(std::span<const Global> globals, const std::set<int64_t>& left_out = {}) {
    FoundCheckpoint result;
    harness::run_ranks(num_ranks(), [&](comm::Communicator& world) {
      const Sites sites = find_sites(root_of(world), world);
      const FoundCheckpoint found = find_complete(root_of(world), left_out, sites, world);
      if (world.rank() == 0) result = found;
      if (!found.newest) return;
      const std::vector<Entry> expected = parts(globals, world.rank());
      std::vector<Entry> entries = parts(globals, world.rank());
      for (Entry& entry : entries) entry.local.zero_();
      bring(found.newest->folder, entries, sites, world);
      EXPECT_EQ(checkpoint::load(found.newest->folder, entries, world), R"({"seed":1})");
      for (size_t i = 0; i < entries.size(); ++i)
        harness::assert_same_bits(entries[i].local, expected[i].local, entries[i].name);
    });
    return result;
  }

 private:
  harness::TemporaryFolder folder_;
  std::vector<int> host_of_rank_;
};

// Tensors of `ranks` ranks: sharded evenly and not, and replicated.
inline std::vector<Global> hosts_model(int ranks, uint64_t seed) {
  std::vector<Global> globals;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "w" + std::to_string(i);
    const at::Tensor tensor = random_tensor(name, {33 + i, 200}, at::kInt, seed);
    const auto placement = i < 3 ? mesh::Placement::sharded(i % 2) : mesh::Placement::replicated();
    globals.push_back({name, tensor, {tensor.sizes().vec(), {{"data", ranks}}, {placement}}});
  }
  return globals;
}

}  // namespace trireme::checkpoint

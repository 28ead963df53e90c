// Checkpoints of whole tensors, of which each rank has its part; ranks are threads.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/checkpoint/saved.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"

namespace trireme::checkpoint {

inline const SaveOptions kFast{.keep = 0, .fsync = false};

struct Global {
  std::string name;
  at::Tensor tensor;
  mesh::Layout layout;
};

inline std::vector<Entry> parts(std::span<const Global> globals, int world_rank) {
  std::vector<Entry> entries;
  for (const Global& global : globals)
    entries.push_back(part_of(global.name, global.tensor, global.layout, world_rank));
  return entries;
}

inline void save_all(const std::filesystem::path& root, int64_t step,
                     std::span<const Global> globals, int size,
                     const SaveOptions& options = kFast) {
  harness::run_ranks(size, [&](comm::Communicator& world) {
    save(root, step, parts(globals, world.rank()), R"({"seed":1})", world, options);
  });
}

// Loads into cleared tensors and compares every rank's part.
inline void expect_loads(const std::filesystem::path& folder, std::span<const Global> globals,
                         int size) {
  harness::run_ranks(size, [&](comm::Communicator& world) {
    const std::vector<Entry> expected = parts(globals, world.rank());
    std::vector<Entry> entries = parts(globals, world.rank());
    for (Entry& entry : entries) entry.local.zero_();
    EXPECT_EQ(load(folder, entries, world), R"({"seed":1})");
    for (size_t i = 0; i < entries.size(); ++i)
      harness::assert_same_bits(entries[i].local, expected[i].local, entries[i].name);
  });
}

// Bytes of the checkpoint's files that no other one has.
inline int64_t own_bytes(const std::filesystem::path& folder) {
  int64_t total = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    struct stat status {};
    EXPECT_EQ(::stat(item.path().c_str(), &status), 0);
    if (status.st_nlink == 1) total += status.st_size;
  }
  return total;
}

}  // namespace trireme::checkpoint

#include "trireme/checkpoint/sites.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"

namespace trireme::checkpoint {

// Whether two ranks see the same folder is tried out: each makes a file, and each looks which of
// the files it sees. Host names say nothing about mounts, and one path may be a shared file system
// on some hosts and a local disk on others. The key is random, so files of other runs in the same
// folder do not count.

namespace {

namespace fs = std::filesystem;

// The lowest rank that has a file with this prefix in `folder`.
int lowest_rank(const fs::path& folder, const std::string& prefix, int mine) {
  int lowest = mine;
  for (const fs::directory_entry& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    // A name that cannot be read as a number counts as this rank's own.
    int rank = mine;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), rank);
    lowest = std::min(lowest, rank);
  }
  return lowest;
}

}  // namespace

Sites Sites::shared(const comm::Communicator& world) {
  return {std::vector<std::string>(world.size()), world.rank()};
}

Sites find_sites(const fs::path& folder, comm::Communicator& world, const OnWait& on_wait) {
  const std::string key = from_root(
      world, [](const Peers&) { return unique_name(); }, on_wait);
  // Begins as the folders of saves do: the next save removes what a killed process left.
  const std::string prefix = concat(".step-site-", key, "-");
  const fs::path mine = folder / concat(prefix, world.rank());
  const auto write = [&](const Peers&) {
    make_folders(folder);
    OutputFile(mine).close();
  };
  // All files are there before anyone looks.
  run_or_throw(world, write, on_wait);
  const auto look = [&](const Peers&) {
    return std::to_string(lowest_rank(folder, prefix, world.rank()));
  };
  const auto marks = gather_or_throw(world, look, on_wait);
  // Not before all have looked, which gather_or_throw() makes sure of.
  std::error_code ignored;
  fs::remove(mine, ignored);
  return {marks, world.rank()};
}

std::string from_leader(const Sites& sites, comm::Communicator& world,
                        const std::function<std::string(const Peers&)>& produce,
                        const OnWait& on_wait) {
  if (sites.size() == 1) return from_root(world, produce, on_wait);
  const auto on_leader = [&](const Peers& peers) {
    return sites.leads() ? produce(peers) : std::string();
  };
  // Every rank takes part; only the results of the leaders count.
  return gather_or_throw(world, on_leader, on_wait)[sites.leader(sites.mine())];
}

void on_leaders(const Sites& sites, comm::Communicator& world,
                const std::function<void(const Peers&)>& work, const OnWait& on_wait) {
  const auto produce = [&](const Peers& peers) {
    work(peers);
    return std::string();
  };
  from_leader(sites, world, produce, on_wait);
}

}  // namespace trireme::checkpoint

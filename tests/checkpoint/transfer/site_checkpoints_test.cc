#include "trireme/checkpoint/transfer/site_checkpoints.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/checkpoint/hosts.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/write/save_plan.h"
#include "trireme/checkpoint/write/saver.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SaveOptions kMemory{.keep = 1, .fsync = false};

SaveOptions with_replicas(int replicas) {
  SaveOptions options = kMemory;
  options.replicas = replicas;
  return options;
}

std::set<std::string> data_files(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    if (name != kManifestName) names.insert(name);
  }
  return names;
}

const std::vector<std::vector<int>> kWorlds{{0}, {0, 1}, {0, 0, 1}, {0, 1, 2, 0}, {0, 0, 1, 1, 2}};

TEST(SiteCheckpoints, EachHostKeepsWhatItsRanksWrite) {
  for (const std::vector<int>& host_of_rank : kWorlds) {
    Hosts hosts(host_of_rank);
    const auto globals = hosts_model(hosts.num_ranks(), 1);
    hosts.save(7, globals, kMemory);
    for (int rank = 0; rank < hosts.num_ranks(); ++rank) {
      const std::string own = shard_name(rank, hosts.num_ranks());
      for (const int host : host_of_rank) {
        EXPECT_EQ(data_files(hosts.root(host) / folder_name(7)).contains(own),
                  host == host_of_rank[rank]);
      }
    }
    const FoundCheckpoint found = hosts.load(globals);
    ASSERT_TRUE(found.newest.has_value());
    EXPECT_EQ(found.newest->step, 7);
    EXPECT_THAT(found.notes, IsEmpty());
  }
}

// The ranks' boxes are other ones than those that were saved.
TEST(SiteCheckpoints, AnotherLayoutGetsWhatOtherHostsHave) {
  Hosts hosts({0, 1, 2});
  auto globals = hosts_model(3, 1);
  hosts.save(7, globals, kMemory);
  for (Global& global : globals) {
    const auto& axes = global.layout.axes();
    const int64_t dim = global.layout.placements()[0].kind == mesh::Placement::Kind::kReplicated
                            ? 0
                            : 1 - global.layout.placements()[0].dim;
    global.layout = {global.tensor.sizes().vec(), axes, {mesh::Placement::sharded(dim)}};
  }
  EXPECT_EQ(hosts.load(globals).newest->step, 7);
}

TEST(SiteCheckpoints, AHostThatIsLostIsReplacedFromReplicas) {
  for (const std::vector<int>& host_of_rank : kWorlds) {
    const int num_hosts = *std::ranges::max_element(host_of_rank) + 1;
    for (int replicas = 1; replicas < num_hosts; ++replicas) {
      for (int lost = 0; lost < num_hosts; ++lost) {
        Hosts hosts(host_of_rank);
        const auto globals = hosts_model(hosts.num_ranks(), 1);
        hosts.save(7, globals, with_replicas(replicas));
        for (int i = 0; i < replicas; ++i) hosts.lose((lost + i) % num_hosts);
        EXPECT_EQ(hosts.load(globals).newest->step, 7);
        // It lies there as it was saved: another host may be lost next.
        EXPECT_TRUE(fs::exists(hosts.root(lost) / folder_name(7) / kManifestName));
      }
    }
  }
}

TEST(SiteCheckpoints, WithoutReplicasALostHostIsSaidWithItsFile) {
  Hosts hosts({0, 1});
  const auto globals = hosts_model(2, 1);
  hosts.save(7, globals, kMemory);
  hosts.lose(1);
  const FoundCheckpoint found = hosts.load(globals);
  EXPECT_FALSE(found.newest.has_value());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("rank-001-of-002.safetensors")));
}

// A save that was killed while the hosts gave it its name.
TEST(SiteCheckpoints, TheNewestThatIsCompleteIsFound) {
  Hosts hosts({0, 1});
  const auto before = hosts_model(2, 1), after = hosts_model(2, 2);
  hosts.save(7, before, kFast);
  hosts.save(8, after, kFast);
  EXPECT_EQ(hosts.load(before, {8}).newest->step, 7);
  fs::remove_all(hosts.root(1) / folder_name(8));
  const FoundCheckpoint found = hosts.load(before);
  EXPECT_EQ(found.newest->step, 7);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr(folder_name(8))));
}

TEST(SiteCheckpoints, AManifestThatIsDamagedOrAnotherOnOneHostIsNotUsed) {
  for (const bool is_damaged : {true, false}) {
    Hosts hosts({0, 1});
    const auto globals = hosts_model(2, 1);
    hosts.save(7, globals, kFast);
    const fs::path manifest = hosts.root(1) / folder_name(7) / kManifestName;
    if (is_damaged) {
      overwrite(manifest, with_flipped_bit(read_file(manifest), 999));
    } else {
      Hosts others({0, 1});
      others.save(7, hosts_model(2, 2), kFast);
      fs::remove_all(hosts.root(1) / folder_name(7));
      fs::copy(others.root(1) / folder_name(7), hosts.root(1) / folder_name(7));
    }
    const FoundCheckpoint found = hosts.load(globals);
    EXPECT_FALSE(found.newest.has_value());
    EXPECT_THAT(found.notes,
                ElementsAre(HasSubstr(is_damaged ? kManifestName : "hosts differ in it")));
  }
}

// Nothing is believed because it is in memory: what a replica holds is checked as everything is.
TEST(SiteCheckpoints, ADamagedReplicaIsRefused) {
  Hosts hosts({0, 1});
  const auto globals = hosts_model(2, 1);
  hosts.save(7, globals, with_replicas(1));
  hosts.lose(1);
  const fs::path replica = hosts.root(0) / folder_name(7) / shard_name(1, 2);
  std::string content = read_file(replica);
  overwrite(replica, with_flipped_bit(content, 8 * content.size() - 77));
  EXPECT_THROW(hosts.load(globals), CheckpointError);
}

// What did not change is linked on each host, in its replicas too.
TEST(SiteCheckpoints, ReplicasOfWhatDidNotChangeAreLinked) {
  Hosts hosts({0, 1, 2});
  const auto globals = hosts_model(3, 1);
  using Inodes = std::map<std::string, ino_t>;
  const auto inodes_of = [&](int host, int64_t step) {
    Inodes inodes;
    const fs::path folder = hosts.root(host) / folder_name(step);
    for (const std::string& name : data_files(folder)) {
      struct stat status {};
      EXPECT_EQ(stat((folder / name).c_str(), &status), 0) << name;
      inodes[name] = status.st_ino;
    }
    return inodes;
  };
  std::vector<Inodes> before(3);
  harness::run_ranks(3, [&](comm::Communicator& world) {
    Saver saver(world, {.in_background = false, .has_replicas = true});
    SaveOptions options = with_replicas(1);
    options.sites = find_sites(hosts.root_of(world), world);
    for (const int64_t step : {7, 8}) {
      saver.start(hosts.root_of(world), step, parts(globals, world.rank()), R"({"seed":1})",
                  options);
      EXPECT_EQ(saver.finish(true)->step, step);
      if (step == 7) before[world.rank()] = inodes_of(world.rank(), 7);
    }
  });
  for (int host = 0; host < 3; ++host) {
    EXPECT_FALSE(fs::exists(hosts.root(host) / folder_name(7)));
    const Inodes after = inodes_of(host, 8);
    EXPECT_EQ(after.size(), 2);  // its own, and one of the host before
    for (const auto& [name, inode] : after) {
      EXPECT_THAT(name, HasSubstr("shared-"));
      const auto is_same = [&](const auto& each) { return each.second == inode; };
      EXPECT_TRUE(std::ranges::any_of(before[host], is_same)) << name;
    }
  }
  hosts.lose(2);
  EXPECT_EQ(hosts.load(globals).newest->step, 8);
}

}  // namespace
}  // namespace trireme::checkpoint

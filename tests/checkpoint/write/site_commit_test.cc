#include "trireme/checkpoint/write/site_commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/hosts.h"
#include "trireme/checkpoint/publish.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(SiteCommit, AHostRemovesItsOldCheckpointWhenAllHaveTheNewOne) {
  const Hosts hosts({0, 1});
  const auto globals = hosts_model(2, 1);
  hosts.save(7, globals, {.keep = 1, .fsync = false});
  // Host 1 cannot give the checkpoint its name.
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const fs::path root = hosts.root_of(world);
    const Sites sites = find_sites(root, world);
    if (world.rank() == 0) prepare_temporary(root, 8);
    const Manifest manifest{.step = 8};
    EXPECT_THROW(
        commit_at_sites(root, manifest, {{}, {}}, sites, {.keep = 1, .fsync = false}, world),
        Error);
  });
  EXPECT_TRUE(fs::exists(hosts.root(0) / folder_name(8)));
  for (const int host : {0, 1})
    EXPECT_TRUE(fs::exists(hosts.root(host) / folder_name(7) / kManifestName)) << host;
}

TEST(SiteCommit, AFailureRemovesTheTemporaryFoldersOfAllSites) {
  const Hosts hosts({0, 1, 1});
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const fs::path root = hosts.root_of(world);
    const Sites sites = find_sites(root, world);
    const auto work = [&] {
      on_leaders(sites, world, [&](const Peers&) { prepare_temporary(root, 9); });
      run_or_throw(world, [&](const Peers&) {
        if (world.rank() == 2) throw Error("No space left on device");
      });
    };
    try {
      clean_up_on_error({root, 9, 1, 1234}, sites, world, {}, work);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("needs 1234 bytes"));
    }
    EXPECT_FALSE(fs::exists(temporary_folder(root, 9)));
  });
}

}  // namespace
}  // namespace trireme::checkpoint

#include "trireme/checkpoint/transfer/site_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/hosts.h"
#include "tests/harness/file_size_limit.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kBlock = uint64_t{4} << 20;

std::string content_of(const std::string& name, uint64_t num_bytes) {
  const at::Tensor bytes = random_tensor(name, {static_cast<int64_t>(num_bytes)}, at::kByte);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

// Every host has some files; they go from each to each.
std::vector<Transfer> plan_for(const Hosts& hosts, int num_hosts) {
  std::vector<Transfer> plan;
  const std::vector<uint64_t> sizes{1, 4095, kBlock, kBlock + 1, 3 * kBlock - 5};
  for (int from = 0; from < num_hosts; ++from) {
    for (int to = 0; to < num_hosts; ++to) {
      if (from == to) continue;
      const uint64_t size = sizes[(from * 3 + to) % sizes.size()];
      const std::string name = "f" + std::to_string(from) + std::to_string(to);
      plan.push_back({name, size, from, to});
      fs::create_directories(hosts.root(from));
      overwrite(hosts.root(from) / name, content_of(name, size));
    }
  }
  return plan;
}

// The message of the Error that every rank throws; "" when none does.
std::string transfer(const Hosts& hosts, const std::vector<Transfer>& plan) {
  std::vector<std::string> messages(hosts.num_ranks());
  harness::run_ranks(hosts.num_ranks(), [&](comm::Communicator& world) {
    const fs::path root = hosts.root_of(world);
    const Sites sites = find_sites(root, world);
    const auto lane = world.split(0, world.rank(), "lane");
    try {
      transfer_files(plan, root, root, sites, world, *lane);
    } catch (const Error& error) {
      messages[world.rank()] = error.what();
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
  return messages.front();
}

TEST(TransferFiles, EveryHostGetsTheBytes) {
  const std::vector<std::vector<int>> cases{{0, 1}, {0, 0, 1}, {0, 1, 2}, {0, 1, 1, 2, 3}};
  for (const std::vector<int>& host_of_rank : cases) {
    const Hosts hosts(host_of_rank);
    const auto plan = plan_for(hosts, host_of_rank.back() + 1);
    EXPECT_EQ(transfer(hosts, plan), "");
    for (const Transfer& each : plan)
      EXPECT_EQ(read_file(hosts.root(each.to) / each.file), content_of(each.file, each.num_bytes));
  }
}

TEST(TransferFiles, AFileThatIsMissingOrOfAnotherSizeFailsOnAllRanks) {
  for (const bool is_missing : {true, false}) {
    const Hosts hosts({0, 1, 2, 2});
    const auto plan = plan_for(hosts, 3);
    const fs::path path = hosts.root(1) / "f12";
    if (is_missing) {
      fs::remove(path);
    } else {
      overwrite(path, "short");
    }
    EXPECT_THAT(transfer(hosts, plan), HasSubstr("f12"));
  }
}

TEST(TransferFiles, AFullDiskFailsOnAllRanks) {
  const Hosts hosts({0, 1});
  const std::vector<Transfer> plan{{"large", 3 * kBlock, 0, 1}};
  fs::create_directories(hosts.root(0));
  overwrite(hosts.root(0) / "large", content_of("large", 3 * kBlock));
  const harness::FileSizeLimit limit(kBlock + 100);
  EXPECT_THAT(transfer(hosts, plan), HasSubstr("large"));
}

}  // namespace
}  // namespace trireme::checkpoint

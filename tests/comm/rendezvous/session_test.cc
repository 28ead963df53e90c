#include "trireme/comm/rendezvous/store_group.h"

#include <future>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
constexpr std::chrono::seconds kSessionPatience{60};

std::future<std::string> join(const StorePtr& store, int rank, int size,
                              std::chrono::milliseconds timeout = kSessionPatience) {
  return std::async(std::launch::async,
                    [=] { return agree_on_session(store, rank, size, timeout); });
}

// The name that all ranks get.
std::string session_of(const StorePtr& store, int size) {
  std::vector<std::future<std::string>> ranks;
  for (int rank = size - 1; rank >= 0; --rank) ranks.push_back(join(store, rank, size));
  std::set<std::string> names;
  for (auto& rank : ranks) names.insert(rank.get());
  EXPECT_EQ(names.size(), 1u);
  return *names.begin();
}

TEST(Session, HasOneNameOnAllRanksAndAnotherEachTime) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  std::set<std::string> names;
  for (const int size : {1, 2, 3, 4, 8, 2, 1}) names.insert(session_of(store, size));
  EXPECT_EQ(names.size(), 7u);
}

TEST(Session, BeginsWithAnyRank) {
  for (const int first : {0, 1, 2}) {
    const StorePtr store = c10::make_intrusive<c10d::HashStore>();
    auto early = join(store, first, 3);
    while (!store->check({concat("arrived/", first)})) std::this_thread::yield();
    auto second = join(store, (first + 1) % 3, 3);
    auto third = join(store, (first + 2) % 3, 3);
    const std::string name = early.get();
    EXPECT_EQ(second.get(), name);
    EXPECT_EQ(third.get(), name);
  }
}

// A job of three ranks that ended at every point of its meeting, in a file that stays.
TEST(Session, WhatACrashedJobLeftInTheStoreChangesNothing) {
  const harness::TemporaryFolder folder;
  const auto store = [&] {
    return c10::make_intrusive<c10d::FileStore>((folder / "store").string(), 3);
  };
  const StorePtr former = store();  // keeps the file
  const std::chrono::milliseconds short_time(30);
  EXPECT_ERROR(CommError, agree_on_session(former, 2, 3, short_time), "did not come");
  EXPECT_ERROR(CommError, agree_on_session(former, 0, 3, short_time), "did not come");
  // Rank 0 has welcomed rank 2, which was gone; now rank 1 and a whole meeting.
  EXPECT_ERROR(CommError, agree_on_session(former, 1, 3, short_time), "no answer");
  const std::string complete = session_of(former, 3);
  std::set<std::string> names = {complete};
  for (int restart = 0; restart < 3; ++restart) names.insert(session_of(store(), 3));
  EXPECT_EQ(names.size(), 4u);
}

TEST(Session, ARankThatStartedBeforeRankZeroIsNotTakenForAnEarlierOne) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  // The number of a rank 1 that is no more.
  store->set("arrived/1", std::string("0123456789abcdef0123456789abcdef"));
  auto zero = join(store, 0, 2);
  while (!store->check({"welcome/0123456789abcdef0123456789abcdef"})) std::this_thread::yield();
  EXPECT_EQ(zero.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  const std::string mine = agree_on_session(store, 1, 2, kSessionPatience);
  EXPECT_EQ(zero.get(), mine);
}

TEST(Session, RanksThatDoNotComeAreNamed) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const std::chrono::milliseconds timeout(100);
  auto one = join(store, 1, 4, timeout);
  EXPECT_ERROR(CommError, one.get(), "rank 1 of 4: these ranks did not come within 0.1 s: 0 2 3");
  const StorePtr other = c10::make_intrusive<c10d::HashStore>();
  auto three = join(other, 3, 4);
  EXPECT_ERROR(CommError, agree_on_session(other, 0, 4, timeout),
               "rank 0 of 4: these ranks did not come within 0.1 s: 1 2");
  three.get();
}

TEST(Session, TwoProcessesOfOneRankAreRefused) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  auto first = join(store, 1, 3);
  auto zero = join(store, 0, 3);
  first.get();
  const std::string number = store->get_to_str("arrived/1");
  auto second = join(store, 1, 3, std::chrono::milliseconds(200));
  while (store->get_to_str("arrived/1") == number) std::this_thread::yield();
  join(store, 2, 3).get();
  EXPECT_ERROR(ConfigError, zero.get(), "two processes are rank 1 of 3 at one store");
  EXPECT_ERROR(CommError, second.get(), "rank 1 of 3");
}

}  // namespace
}  // namespace trireme::comm

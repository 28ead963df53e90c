#include "trireme/base/machine/memory_ledger.h"

#include <optional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using enum MemoryKind;

TEST(MemoryLedger, KeepsTheKindsOfTheMomentWhenTheirSumWasLargest) {
  const auto ledger = MemoryLedger::make();
  ledger->add(kWeights, 100);
  ledger->add(kActivations, 50);  // 150
  ledger->add(kActivations, -50);
  ledger->add(kBuckets, 40);  // 140
  const MemoryUse use = ledger->use();
  EXPECT_EQ(use.now[kWeights], 100);
  EXPECT_EQ(use.now[kActivations], 0);
  EXPECT_EQ(use.now.total(), 140);
  EXPECT_EQ(use.most[kBuckets], 40);
  EXPECT_EQ(use.at_peak[kActivations], 50);
  EXPECT_EQ(use.at_peak[kBuckets], 0);
  EXPECT_EQ(use.at_peak.total(), 150);
}

TEST(MemoryScope, TheInnermostNamesTheKind) {
  const auto ledger = MemoryLedger::make();
  const MemoryScope outer(kActivations, ledger);
  {
    const MemoryScope inner(kGathered);
    EXPECT_EQ(memory_owner().kind, kGathered);
    EXPECT_EQ(memory_owner().ledger, ledger);
  }
  EXPECT_EQ(memory_owner().kind, kActivations);
}

TEST(MemoryScope, AThreadWithoutOneCountsForTheOnlyLedger) {
  const auto ledger_of_thread = [] {
    std::shared_ptr<MemoryLedger> found;
    std::thread([&] { found = memory_owner().ledger; }).join();
    return found;
  };
  EXPECT_EQ(ledger_of_thread(), nullptr);
  const auto one = MemoryLedger::make();
  EXPECT_EQ(ledger_of_thread(), one);
  const auto two = MemoryLedger::make();
  EXPECT_EQ(ledger_of_thread(), nullptr);
}

TEST(MemoryCharge, IsGivenBackOnceWhereverItIs) {
  const auto ledger = MemoryLedger::make();
  MemoryCharge kept;
  {
    const MemoryScope scope(kStates, ledger);
    MemoryCharge charge(1000);
    EXPECT_EQ(ledger->use().now[kStates], 1000);
    kept = std::move(charge);
  }
  EXPECT_EQ(ledger->use().now[kStates], 1000);
  std::thread([moved = std::move(kept)]() mutable { moved = {}; }).join();
  EXPECT_EQ(ledger->use().now[kStates], 0);
}

TEST(MemoryCharge, KeepsItsLedgerAlive) {
  std::optional<MemoryCharge> charge;
  std::weak_ptr<MemoryLedger> ledger;
  {
    const auto made = MemoryLedger::make();
    ledger = made;
    charge.emplace(8, MemoryOwner{made, kOther});
  }
  EXPECT_FALSE(ledger.expired());
  charge.reset();
  EXPECT_TRUE(ledger.expired());
}

}  // namespace
}  // namespace trireme

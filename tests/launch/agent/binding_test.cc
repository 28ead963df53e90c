#include "trireme/launch/agent/crew.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(DivideCores, GivesEachWorkerItsOwn) {
  const CoreSet all = allowed_cores();
  for (int num_workers = 1; num_workers <= static_cast<int>(all.count()); ++num_workers) {
    CoreSet seen;
    for (const CoreSet& part : divide_cores(num_workers)) {
      EXPECT_TRUE(part.any());
      EXPECT_TRUE((part & seen).none());
      seen |= part;
    }
    EXPECT_TRUE((seen & ~all).none());
  }
  EXPECT_EQ(divide_cores(1).front(), all);
}

TEST(DivideCores, BindsNobodyWhenThereAreTooFew) {
  EXPECT_TRUE(divide_cores(static_cast<int>(allowed_cores().count()) + 1).empty());
}

TEST(DivideCores, BindsNobodyWhoWouldHaveFewerThanItNeeds) {
  const auto count = static_cast<int>(allowed_cores().count());
  EXPECT_EQ(divide_cores(1, count).size(), 1u);
  EXPECT_TRUE(divide_cores(1, count + 1).empty());
  EXPECT_TRUE(divide_cores(count, kFewestCoresOverNetwork).empty());
}

TEST(CoreSet, IsShownAsRanges) {
  CoreSet cores;
  for (const size_t core : {0, 1, 2, 5, 7, 8}) cores.set(core);
  EXPECT_EQ(to_text(cores), "0-2,5,7-8");
  EXPECT_EQ(to_text(CoreSet()), "");
}

}  // namespace
}  // namespace trireme::launch

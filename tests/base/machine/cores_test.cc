#include "trireme/base/machine/machine.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace trireme {
namespace {

CoreSet cores(std::initializer_list<size_t> list) {
  CoreSet set;
  for (const size_t core : list) set.set(core);
  return set;
}

bool have_core_each(const std::vector<CoreSet>& sets) {
  return trireme::have_core_each(std::span(sets));
}

TEST(Cores, ABoundThreadMayRunOnItsCoreAlone) {
  const CoreSet before = allowed_cores();
  EXPECT_EQ(num_cores(), static_cast<int>(before.count()));
  std::thread([&] {
    size_t last = 0;
    for (size_t core = 0; core < before.size(); ++core) last = before[core] ? core : last;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(last, &own);
    ASSERT_EQ(sched_setaffinity(0, sizeof(own), &own), 0);
    EXPECT_EQ(allowed_cores(), cores({last}));
    EXPECT_EQ(num_cores(), 1);
  }).join();
  EXPECT_EQ(allowed_cores(), before);
}

TEST(Cores, UnboundThreadsHaveACoreEachUntilThereAreMoreThanCores) {
  const CoreSet all = cores({0, 1, 2});
  EXPECT_TRUE(have_core_each({}));
  EXPECT_TRUE(have_core_each({all, all, all}));
  EXPECT_FALSE(have_core_each({all, all, all, all}));
}

TEST(Cores, ThreadsBoundToDifferentCoresHaveACoreEach) {
  EXPECT_TRUE(have_core_each({cores({5}), cores({1023}), cores({0})}));
  EXPECT_FALSE(have_core_each({cores({5}), cores({1023}), cores({5})}));
}

TEST(Cores, AThreadMakesRoomForOneWithLessChoice) {
  EXPECT_TRUE(have_core_each({cores({0, 1, 2}), cores({0, 1}), cores({0})}));
  EXPECT_FALSE(have_core_each({cores({0, 1, 2, 3}), cores({0, 1}), cores({0}), cores({1})}));
}

}  // namespace
}  // namespace trireme

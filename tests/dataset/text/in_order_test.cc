#include "trireme/dataset/text/in_order.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

using Work = std::function<int()>;

TEST(InOrder, ResultsComeInTheOrderOfTheWork) {
  for (const int num_threads : {1, 2, 5}) {
    int begun = 0;
    std::atomic<int> running{0}, most{0};
    std::vector<int> taken;
    in_order<int>(
        num_threads,
        [&]() -> Work {
          if (begun == 40) return {};
          return [&, i = begun++] {
            const int now = ++running;
            for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
            }
            std::this_thread::sleep_for(std::chrono::microseconds(i % 7 == 0 ? 2000 : 10));
            --running;
            return i;
          };
        },
        [&](int i) { taken.push_back(i); });
    ASSERT_EQ(taken.size(), 40U);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(taken[static_cast<size_t>(i)], i);
    EXPECT_LE(most, num_threads);
  }
}

TEST(InOrder, TheFirstFailureEndsItAfterWhatCameBefore) {
  for (const int num_threads : {1, 3}) {
    for (const int place : {0, 1, 2}) {  // next, work, take
      int begun = 0;
      std::atomic<int> running{0};
      std::vector<int> taken;
      const auto fail_in = [place](int here) {
        if (here == place) throw std::runtime_error("failure");
      };
      EXPECT_THROW(in_order<int>(
                       num_threads,
                       [&]() -> Work {
                         if (begun == 9) fail_in(0);
                         ++running;
                         return [&, i = begun++] {
                           --running;
                           if (i == 9) fail_in(1);
                           return i;
                         };
                       },
                       [&](int i) {
                         if (i == 9) fail_in(2);
                         taken.push_back(i);
                       }),
                   std::runtime_error);
      EXPECT_EQ(running, 0);
      EXPECT_EQ(taken.size(), 9U) << num_threads << " " << place;
    }
  }
}

TEST(InOrder, NoWorkIsNothingToTake) {
  in_order<int>(
      2, []() -> Work { return {}; }, [](int) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace trireme::dataset

// Two jobs of two ranks on one host that must never become one, started in every order.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "trireme/comm/rendezvous/rendezvous.h"

namespace trireme::comm {

// The four processes by number: job * 2 + rank.
using StartOrder = std::array<int, 4>;

inline std::vector<StartOrder> every_start_order() {
  std::vector<StartOrder> orders;
  StartOrder order = {0, 1, 2, 3};
  do {
    orders.push_back(order);
  } while (std::ranges::next_permutation(order).found);
  return orders;
}

// Lets processes begin one after the other. Made before they fork.
class Turns {
 public:
  Turns()
      : next_(static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>),
                                                  PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Turns() { munmap(next_, sizeof(*next_)); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Returns in each process at its turn. Those before it have had `head_start` each.
  void wait(const StartOrder& order, int process, std::chrono::milliseconds head_start) {
    const auto place = static_cast<int>(std::ranges::find(order, process) - order.begin());
    while (*next_ < place) std::this_thread::yield();
    std::this_thread::sleep_for(place == 0 ? std::chrono::milliseconds(0) : head_start);
    ++*next_;
  }

 private:
  std::atomic<int>* next_;
};

// Joins as a rank of `job` and expects that all it meets are of the same job.
inline void expect_own_job(const WorldInfo& info, int job) {
  GroupOptions options;
  options.timeout = std::chrono::seconds(60);
  const auto world = connect_world(info, "auto", options);
  EXPECT_EQ(transport_of(*world), "shared memory");
  for (int round = 0; round < 3; ++round) {
    at::Tensor sum = at::full({100}, job == 0 ? 1 : 1000);
    world->all_reduce(sum)->wait();
    EXPECT_EQ(sum[99].item<float>(), job == 0 ? 2 : 2000) << "rank " << info.rank << " met others";
  }
  world->barrier()->wait();
}

}  // namespace trireme::comm

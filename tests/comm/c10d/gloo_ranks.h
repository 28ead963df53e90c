// Ranks over gloo on the loopback interface: as threads, or as processes.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/comm/c10d/gloo_group.h"

namespace trireme::comm {

inline GlooOptions loopback_options(
    std::chrono::milliseconds timeout = std::chrono::milliseconds(60000)) {
  return {.timeout = timeout, .interface = find_interface_to("127.0.0.1")};
}

// The first failure is thrown again; its group goes with it.
inline void run_gloo_ranks(int size, const harness::RankFunction& function,
                           const GlooOptions& options = loopback_options()) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = make_gloo_group(store, rank, size, options);
        function(*group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

inline std::vector<harness::ExitStatus> fork_gloo_ranks(
    int size, const harness::RankFunction& function,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(60000)) {
  const harness::TemporaryFolder folder;
  const std::string path = (folder / "store").string();
  return harness::fork_processes(size, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(path, size);
    function(*make_gloo_group(store, rank, size, loopback_options(timeout)));
  });
}

}  // namespace trireme::comm

#include "trireme/comm/shared/thread_group.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/shared/shared_communicator.h"

namespace trireme::comm {

std::vector<std::unique_ptr<Communicator>> make_thread_group(int size,
                                                             const GroupOptions& options) {
  TRIREME_CHECK(size >= 1, "a group needs at least one rank, got ", size);
  const Host host{"threads", make_thread_segments(), Heap::of_threads()};
  std::vector<std::unique_ptr<Communicator>> ranks(size);
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::atomic<bool>> failed(size);
  std::vector<std::thread> threads;
  // Joining waits for all ranks, so each joins on its own thread.
  for (int rank = 0; rank < size; ++rank) {
    const auto join = [&, rank] {
      try {
        ranks[rank] = SharedCommunicator::join(host, host.job, rank, size, options, [&](int peer) {
          return failed[peer].load() ? concat("rank ", peer, " could not join") : "";
        });
      } catch (...) {
        errors[rank] = std::current_exception();
        // A thread has no lock that shows its end, so the others are told.
        failed[rank].store(true);
      }
    };
    try {
      threads.emplace_back(join);
    } catch (const std::system_error&) {  // the system has no more threads
      for (int other = rank; other < size; ++other) failed[other].store(true);
      errors[rank] = std::current_exception();
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return ranks;
}

void run_thread_group(int size, const std::function<void(Communicator&)>& function,
                      const GroupOptions& options) {
  auto groups = make_thread_group(size, options);
  std::mutex mutex;
  std::exception_ptr cause;
  std::exception_ptr consequence;  // a peer may learn of a failure before its rank gets here
  const auto keep_first = [&](std::exception_ptr& kept) {
    const std::lock_guard lock(mutex);
    if (!kept) kept = std::current_exception();
  };
  std::vector<std::thread> threads;
  for (auto& group : groups) {
    const auto run = [&] {
      try {
        function(*group);
        return;
      } catch (const CommError&) {
        keep_first(consequence);
      } catch (...) {
        keep_first(cause);
      }
      group.reset();  // the peers learn that this rank has left
    };
    try {
      threads.emplace_back(run);
    } catch (const std::system_error&) {  // no more threads: this rank and those after it leave
      keep_first(cause);
      for (auto* left = &group; left != groups.data() + groups.size(); ++left) left->reset();
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  // A peer's CommError tells only that somebody failed; the cause is the other exception.
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace trireme::comm

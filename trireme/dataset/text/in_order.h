// Work on several threads whose results come in the order in which the work was found.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::dataset {

// Calls next() until it returns an empty function, what it returns on up to `num_threads` threads,
// and take() with the results, in the order of next(). next() and take() are called on this thread;
// with one thread, the work is done there too. The first exception, in the order of the work, ends
// the rest and is rethrown after the work that had begun, the same with any number of threads.
template <typename Result>
void in_order(int num_threads, const std::function<std::function<Result()>()>& next,
              const std::function<void(Result)>& take) {
  TRIREME_ASSERT(num_threads > 0, "num_threads is ", num_threads);
  std::deque<std::future<Result>> running;
  const auto take_first = [&] {
    Result result = running.front().get();
    running.pop_front();
    take(std::move(result));
  };
  std::exception_ptr failure;  // of next(); what was found before may fail as well
  const auto find = [&]() -> std::function<Result()> {
    try {
      return next();
    } catch (...) {
      failure = std::current_exception();
      return {};
    }
  };
  while (std::function<Result()> work = find()) {
    if (num_threads == 1) {
      take(work());
      continue;
    }
    // A thread for each piece of work: those that use this have pieces of milliseconds.
    running.push_back(std::async(std::launch::async, std::move(work)));
    if (running.size() >= static_cast<size_t>(num_threads)) take_first();
  }
  while (!running.empty()) take_first();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme::dataset

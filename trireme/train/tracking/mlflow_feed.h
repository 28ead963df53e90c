// Sends the metrics of a run to an MLflow server from a thread of its own, so that a server that is
// slow, down or hostile never holds a step.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/train/tracking/mlflow_client.h"

namespace trireme::train {

struct FeedOptions {
  size_t most_waiting_bytes = size_t{16} << 20;  // of lines; later ones are dropped and counted
  // How long a value may wait for others that go with it in one call.
  std::chrono::milliseconds gather{1000};
  // Between two tries while the server does not answer, doubling up to the second.
  std::chrono::milliseconds first_pause{1000};
  std::chrono::milliseconds longest_pause{60'000};
  // How long finish() waits for a server that does not answer.
  std::chrono::milliseconds failing_patience{2000};
};

// One thread uses it, which never waits but in finish().
class MlflowFeed {
 public:
  // Throws: ConfigError in a build without libcurl
  MlflowFeed(MlflowServer server, MlflowStart start, const FeedOptions& options = {});
  // Drops what waits.
  ~MlflowFeed();
  MlflowFeed(const MlflowFeed&) = delete;
  MlflowFeed& operator=(const MlflowFeed&) = delete;

  // A line of metrics.jsonl.
  void add(std::string line);
  // Sends what waits, then the status (as MlflowClient::set_status), for at most `patience`, and
  // while calls fail for at most the options' failing_patience; what has not gone by then is
  // dropped. The last call.
  void finish(const std::string& status, std::chrono::milliseconds patience);

  // For the user, a line each: the first time that the server fails, and at the end how many values
  // it has not got.
  std::vector<std::string> take_problems();
  int64_t num_sent() const;
  int64_t num_dropped() const;  // values

 private:
  using Lock = std::unique_lock<std::mutex>;
  void work();
  template <typename Call>
  bool try_until_done(const Call& call);
  bool pause(std::chrono::milliseconds pause);
  void fail(const std::string& message, const char* what_now);
  void note_answer(bool is_answered);
  void await_end(Lock& lock, std::chrono::milliseconds patience);
  std::vector<MlflowValue> take_values();
  void drop_waiting();

  const MlflowServer server_;
  const MlflowStart start_;
  const FeedOptions options_;
  MlflowClient client_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  size_t num_waiting_bytes_ = 0;
  std::vector<MlflowValue> ready_;  // of lines that were taken; the thread's own
  std::vector<std::string> problems_;
  bool has_failed_ = false;
  std::optional<std::chrono::steady_clock::time_point> failing_since_;  // without an answer
  int64_t num_sent_ = 0;
  int64_t num_dropped_ = 0;
  std::string status_;         // "": goes on
  bool is_finishing_ = false;  // send the rest
  bool is_ending_ = false;     // leave at once
  bool has_ended_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace trireme::train

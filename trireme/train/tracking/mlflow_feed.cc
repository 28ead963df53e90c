#include "trireme/train/tracking/mlflow_feed.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/metrics/logged_step.h"

namespace trireme::train {
namespace {

// While the run's end waits.
constexpr std::chrono::milliseconds kLastPause{200};

int64_t values_in(const std::string& line) {
  const auto logged = parse_logged_step(line);
  return logged ? std::ssize(logged->values) : 0;
}

}  // namespace

MlflowFeed::MlflowFeed(MlflowServer server, MlflowStart start, const FeedOptions& options)
    : server_(std::move(server)), start_(std::move(start)), options_(options), client_(server_) {
  // The thread inherits the mask: signals are for the program's own.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MlflowFeed::~MlflowFeed() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  client_.cancel();
  changed_.notify_all();
  thread_.join();
}

void MlflowFeed::add(std::string line) {
  const std::lock_guard lock(mutex_);
  if (is_finishing_ || num_waiting_bytes_ + line.size() > options_.most_waiting_bytes) {
    num_dropped_ += values_in(line);
    return;
  }
  num_waiting_bytes_ += line.size();
  waiting_.push_back(std::move(line));
  changed_.notify_all();
}

void MlflowFeed::finish(const std::string& status, std::chrono::milliseconds patience) {
  {
    Lock lock(mutex_);
    status_ = status;
    is_finishing_ = true;
    changed_.notify_all();
    await_end(lock, patience);
    is_ending_ = true;
  }
  client_.cancel();
  changed_.notify_all();
  Lock lock(mutex_);
  // A cancelled call ends within a second or so.
  changed_.wait(lock, [this] { return has_ended_; });
  if (num_dropped_ > 0) {
    problems_.push_back(concat(server_.url, " has not got ", num_dropped_,
                               " values of the run; `trireme track mlflow` sends them later"));
  }
}

void MlflowFeed::await_end(Lock& lock, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (!has_ended_) {
    Clock::time_point end = begin + patience;
    if (failing_since_)
      end = std::min(end, std::max(begin, *failing_since_) + options_.failing_patience);
    if (Clock::now() >= end) return;
    changed_.wait_until(lock, end);
  }
}

std::vector<std::string> MlflowFeed::take_problems() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

int64_t MlflowFeed::num_sent() const {
  const std::lock_guard lock(mutex_);
  return num_sent_;
}

int64_t MlflowFeed::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return num_dropped_;
}

// Only the first time: a server that is down for a day says so once.
void MlflowFeed::fail(const std::string& message, const char* what_now) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_failed_, true)) return;
  problems_.push_back(concat("warning: tracking.mlflow: ", message, "; ", what_now));
}

void MlflowFeed::note_answer(bool is_answered) {
  const std::lock_guard lock(mutex_);
  if (is_answered == !failing_since_) return;
  failing_since_.reset();
  if (!is_answered) failing_since_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

// Returns false when it is time to leave.
bool MlflowFeed::pause(std::chrono::milliseconds pause) {
  Lock lock(mutex_);
  const bool was_finishing = is_finishing_;
  changed_.wait_for(lock, was_finishing ? std::min(pause, kLastPause) : pause,
                    [&] { return is_ending_ || is_finishing_ != was_finishing; });
  return !is_ending_;
}

// Tries a call again while the server does not answer. Returns whether it was done; false: the
// server refuses it, or the feed ends.
template <typename Call>
bool MlflowFeed::try_until_done(const Call& call) {
  for (auto wait = options_.first_pause;; wait = std::min(2 * wait, options_.longest_pause)) {
    try {
      call();
      note_answer(true);
      return true;
    } catch (const CommError& error) {
      {
        const std::lock_guard lock(mutex_);
        if (is_ending_) return false;
      }
      note_answer(false);
      fail(error.what(), "values wait for it, and training goes on");
    } catch (const std::exception& error) {  // it refuses, or memory is short here: the run goes on
      note_answer(true);
      fail(error.what(), "it does not get these values, and training goes on");
      pause(options_.first_pause);  // what it refuses in a loop is no load on it
      return false;
    }
    if (!pause(wait)) return false;
  }
}

// The values of one call. Waits for the first of them, and a moment for others. Empty: the run has
// ended, and nothing waits.
std::vector<MlflowValue> MlflowFeed::take_values() {
  constexpr size_t kMost = MlflowClient::kMostValues;
  std::chrono::steady_clock::time_point gathered_at{};
  while (ready_.size() < kMost) {
    std::string line;
    {
      Lock lock(mutex_);
      const auto has_news = [this] { return is_ending_ || is_finishing_ || !waiting_.empty(); };
      if (ready_.empty()) {
        changed_.wait(lock, has_news);
        gathered_at = std::chrono::steady_clock::now() + options_.gather;
      } else {
        changed_.wait_until(lock, gathered_at, has_news);
      }
      if (is_ending_ || waiting_.empty()) break;
      line = std::move(waiting_.front());
      waiting_.pop_front();
      num_waiting_bytes_ -= line.size();
    }
    const auto logged = parse_logged_step(line);
    if (!logged) continue;
    const int64_t time_ms = std::llround(logged->time * 1000);
    for (const LoggedValue& each : logged->values)
      ready_.push_back({each.name, each.value, logged->step, time_ms});
  }
  const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, ready_.size()));
  std::vector<MlflowValue> values(std::make_move_iterator(ready_.begin()),
                                  std::make_move_iterator(end));
  ready_.erase(ready_.begin(), end);
  return values;
}

void MlflowFeed::drop_waiting() {
  const std::lock_guard lock(mutex_);
  num_dropped_ += std::ssize(ready_);
  for (const std::string& line : waiting_) num_dropped_ += values_in(line);
  ready_.clear();
  waiting_.clear();
  num_waiting_bytes_ = 0;
}

void MlflowFeed::work() {
  std::string run_id;
  bool goes_on = true;
  while (goes_on && run_id.empty()) {
    // A server that refuses may be set right while the run goes on.
    try_until_done([&] { run_id = client_.open_run(start_); });
    if (run_id.empty()) goes_on = pause(options_.longest_pause);
    const std::lock_guard lock(mutex_);
    if (run_id.empty() && is_finishing_) goes_on = false;
  }
  while (goes_on) {
    const std::vector<MlflowValue> values = take_values();
    if (values.empty()) break;
    const bool is_sent = try_until_done([&] { client_.log(run_id, values); });
    const std::lock_guard lock(mutex_);
    (is_sent ? num_sent_ : num_dropped_) += std::ssize(values);
    goes_on = !is_ending_;
  }
  std::string status;
  {
    const std::lock_guard lock(mutex_);
    status = status_;
  }
  if (goes_on && !status.empty()) {
    const auto now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const int64_t ended_ms = status == "RUNNING" ? 0 : now_ms.count();
    try_until_done([&] { client_.set_status(run_id, status, ended_ms); });
  }
  drop_waiting();
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

}  // namespace trireme::train

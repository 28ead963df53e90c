#include "trireme/comm/c10d/c10d_monitored_barrier.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "trireme/base/error.h"

namespace trireme::comm::inline internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The last tag of a group between hosts, which programs are not expected to use.
constexpr int kTag = (1 << 26) - 1;
// How much longer than rank 0 the others wait.
constexpr milliseconds kVerdict = std::chrono::seconds(2);
// The messages' own timeout. The waits end earlier, because a message that timed out would kill the
// group.
constexpr milliseconds kNoEnd = std::chrono::hours(24 * 365);

std::string text_of(const std::vector<int>& ranks, const char* before_each) {
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "" : ", ", before_each, rank);
  return text;
}

// One rank's part.
class MonitoredBarrier {
 public:
  MonitoredBarrier(Communicator& group, std::mutex& issuing, milliseconds limit)
      : group_(group), issuing_(issuing), limit_(limit), end_(Clock::now() + limit) {}

  void run_as_monitor(bool wait_all_ranks) {
    std::vector<WorkPtr> arrivals(group_.size());
    for (int rank = 1; rank < group_.size(); ++rank) arrivals[rank] = recv(rank, kNoEnd);
    std::vector<int> late;
    std::string failure;
    for (int rank = 1; rank < group_.size(); ++rank) {
      if (is_done(*arrivals[rank], left(), failure)) continue;
      late.push_back(rank);
      if (!wait_all_ranks) break;
    }
    if (!late.empty()) {
      const bool is_one = !wait_all_ranks;
      const std::string in_words_of_gloo =
          concat("[Rank 0]: ", is_one ? "Rank " : "Ranks ", text_of(late, ""),
                 " failed to pass monitoredBarrier in ", limit_.count(), " ms",
                 limit_.count() > 0 ? "" : "; Rank 0 timed out in monitoredBarrier after 0 ms");
      fail(in_words_of_gloo, failure.empty() ? timed_out(text_of(late, "rank ")) : failure);
    }
    std::vector<WorkPtr> answers;
    for (int rank = 1; rank < group_.size(); ++rank) {
      answers.push_back(send(rank, std::max(limit_, kVerdict)));
    }
    for (const WorkPtr& answer : answers) {
      if (!is_done(*answer, kNoEnd, failure)) fail("[Rank 0]: monitoredBarrier failed", failure);
    }
  }

  void run_as_monitored() {
    const WorkPtr arrival = send(0, kNoEnd);
    const WorkPtr answer = recv(0, kNoEnd);
    std::string failure;
    if (is_done(*answer, left() + kVerdict, failure)) return;
    fail(concat("Rank ", group_.rank(),
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please check rank 0 logs for faulty rank"),
         failure.empty() ? timed_out("rank 0") : failure);
  }

 private:
  Options options(milliseconds timeout) const {
    return {.timeout = timeout, .tag = kTag, .background = true};
  }
  WorkPtr send(int rank, milliseconds timeout) {
    const std::lock_guard lock(issuing_);
    return group_.send(at::ones({1}, at::kByte), rank, options(timeout));
  }
  WorkPtr recv(int rank, milliseconds timeout) {
    const std::lock_guard lock(issuing_);
    return group_.recv(at::empty({1}, at::kByte), rank, options(timeout));
  }
  milliseconds left() const {
    return std::max(std::chrono::ceil<milliseconds>(end_ - Clock::now()), milliseconds(0));
  }
  // False after `limit`, and when the group is dead; then `failure` has the reason.
  static bool is_done(Work& work, milliseconds limit, std::string& failure) {
    try {
      return work.wait_for(limit);
    } catch (const CommError& error) {
      failure = error.what();
      return false;
    }
  }
  std::string timed_out(const std::string& waiting_for) const {
    return concat("monitored_barrier of group ", group_.name(), " (", group_.size(),
                  " ranks), timed out after ", static_cast<double>(limit_.count()) / 1000,
                  " s waiting for ", waiting_for);
  }
  [[noreturn]] void fail(const std::string& in_words_of_gloo, const std::string& failure) {
    group_.abort(failure);
    C10_THROW_ERROR(DistBackendError, concat(in_words_of_gloo, ": ", failure));
  }

  Communicator& group_;
  std::mutex& issuing_;
  milliseconds limit_;
  Clock::time_point end_;
};

}  // namespace

void monitored_barrier(Communicator& group, std::mutex& issuing, milliseconds limit,
                       bool wait_all_ranks) {
  MonitoredBarrier barrier(group, issuing, limit);
  if (group.rank() == 0) {
    barrier.run_as_monitor(wait_all_ranks);
  } else {
    barrier.run_as_monitored();
  }
}

}  // namespace trireme::comm::inline internal

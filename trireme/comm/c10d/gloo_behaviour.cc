#include "trireme/comm/c10d/gloo_behaviour.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

struct Sign {
  std::string_view phrase;
  FailureKind kind;
};

// The first entry found in the text decides. The text says that a peer gave up, and then why; the
// reason decides.
constexpr std::array<Sign, 7> kSigns{{
    {"call different operations", FailureKind::kMismatch},
    {" expects ", FailureKind::kMismatch},
    {"timed out after ", FailureKind::kTimedOut},
    {"did not come within ", FailureKind::kNeverCame},
    {"never came within ", FailureKind::kNeverCame},
    {"was aborted by a peer", FailureKind::kPeerLost},
    {"was aborted", FailureKind::kAborted},
}};

// Null when the text has none of the phrases.
const Sign* sign_of(std::string_view failure) {
  for (const Sign& sign : kSigns) {
    if (failure.find(sign.phrase) != std::string_view::npos) return &sign;
  }
  return nullptr;
}

// " 1500ms" for a text in which "1.5 s" follows the sign's phrase.
std::string milliseconds_in(std::string_view failure, const Sign& sign) {
  const std::string_view rest = failure.substr(failure.find(sign.phrase) + sign.phrase.size());
  double seconds = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), seconds);
  return parsed.ec == std::errc() ? concat(" ", std::llround(seconds * 1000), "ms") : "";
}

}  // namespace

FailureKind kind_of(std::string_view failure) {
  const Sign* const sign = sign_of(failure);
  return sign == nullptr ? FailureKind::kPeerLost : sign->kind;
}

std::string in_words_of_gloo(const std::string& failure) {
  const Sign* const sign = sign_of(failure);
  const auto say = [&](const std::string& phrase) {
    return concat("[trireme] ", phrase, ": ", failure);
  };
  switch (kind_of(failure)) {
    case FailureKind::kTimedOut: return say("Timed out waiting" + milliseconds_in(failure, *sign));
    case FailureKind::kNeverCame:
      return say("wait timeout after" + milliseconds_in(failure, *sign));
    // Gloo itself never detects a mismatch. These are the words of torch's checks in debug mode.
    case FailureKind::kMismatch: return say("Detected mismatch between collectives on ranks");
    case FailureKind::kAborted: return failure;
    case FailureKind::kPeerLost: break;
  }
  return say("Connection closed by peer");
}

void as_c10d_errors(const std::function<void()>& operation) {
  try {
    operation();
  } catch (const CommError& error) {
    // c10d's own type, for which its callers look.
    C10_THROW_ERROR(DistBackendError, in_words_of_gloo(error.what()));
  }
}

// Rank 0 hears from every rank and then answers every rank. So one clock decides who was late, and
// the others, which wait longer, learn what it decided. It is made of messages, because these go on
// beside the group's collectives: a rank that is stuck in one counts as late, which is what the
// caller asks.

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kTag = kMostTag;  // which programs are not expected to use
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
    // All of them first: ranks come in any order.
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
      // The message's own timeout ends this wait.
      if (!is_done(*answer, kNoEnd, failure)) fail("[Rank 0]: monitoredBarrier failed", failure);
    }
  }

  void run_as_monitored() {
    const WorkPtr arrival = send(0, kNoEnd);
    const WorkPtr answer = recv(0, kNoEnd);
    std::string failure;
    // Longer than rank 0, which names who is late.
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
    // The others must not go on with a group in which a rank is missing.
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

}  // namespace trireme::comm

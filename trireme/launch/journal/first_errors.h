// The output of a running job for its user: rank 0's output, and each rank's first error once,
// causes before consequences. Everything else is in the logs.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {

// Pure: prints nothing, reads no clock. Not thread safe. Every function returns the lines to print
// now, without newlines and as the programs wrote them: print them through cli's printable().
//
// Rank 0's lines are returned at once, except errors. An error waits kSettle for the same one of
// other ranks ("ranks 1-3: ..."). One that says that a peer was lost waits longer, until a rank has
// died of something else, or until kPatience or finish(): it follows the cause or stands for it.
class FirstErrors {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSettle{300};
  static constexpr std::chrono::seconds kPatience{10};
  // Limit on the lines of a traceback; the middle of a longer one is left out.
  static constexpr size_t kMaxErrorLines = 40;

  // A line that LogWriter returned.
  std::vector<std::string> add_line(int rank, LogStream stream, std::string_view line,
                                    Clock::time_point now);
  // A worker has failed. `message` describes it ("rank 2 was killed by signal 9"); `lost_peer`: it
  // ended with exit code 3, because of another rank. Not for one that ended well or as asked.
  std::vector<std::string> add_exit(int rank, std::string_view message, bool lost_peer,
                                    Clock::time_point now);
  // Call this several times a second.
  std::vector<std::string> poll(Clock::time_point now);
  // Returns all that was held. Begins anew: each rank may have a first error again in the next
  // epoch.
  std::vector<std::string> finish();

 private:
  struct RankState {
    LogLevels levels{};
    std::vector<std::string> block{};  // the error that is being read, line by line
    std::vector<std::string> last{};   // the last one, if it was not shown
    bool has_error = false;            // its first error was taken
    bool lost_peer = false;            // its last error says so
  };
  struct Error {
    std::set<int> ranks{};
    std::vector<std::string> lines{};
    bool lost_peer = false;
    bool is_cause = false;  // a rank has died of it
    Clock::time_point since{};
  };

  void take_block(int rank, Clock::time_point now);
  Error* held_error_of(int rank);
  std::vector<std::string> print_due(Clock::time_point now);
  std::vector<std::string> print_lost_peers();

  std::map<int, RankState> ranks_{};
  std::vector<Error> held_{};  // in the order of their coming
  bool has_cause_ = false;     // one was returned
};

// "rank 3", "ranks 0-3, 7 and 9".
std::string ranks_in_words(const std::set<int>& ranks);

}  // namespace trireme::launch

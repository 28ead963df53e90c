// Who takes part in which round of learners that come and go: the decisions of the service at which
// they meet. Knows no network, no bytes and no clock.
//
// The head is the step of the last round and the hash of the weights that all have in common since
// then. A learner with these weights is in. A round begins when the first of them offers its
// message, and is decided once all that are in and there have offered theirs, or the patience with
// the others is over. A decision is final: who is in it gets its messages and comes to the same new
// head, and everybody else is behind and takes the weights of one that was in it.
//
// With a quorum, a round is also decided when so many have offered, or all that are in if these are
// fewer, and the grace has passed since. Who is late for it offers what it has in a later round. So
// the last round has no quorum, and waits for them too.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/rounds/patience.h"

namespace trireme::comm {

inline constexpr int kMaxRoundPlaces = 4096;
inline constexpr int kMaxRoundRanks = 4096;

// What a rank of a learner says of itself. All ranks of a learner are the same but for `rank` and
// `hash`.
struct RoundMember {
  int place = 0;  // of the learner, from 0
  int num_places = 1;
  int rank = 0;  // in the learner
  int num_ranks = 1;
  std::string process{};  // another one after each start of the learner
  std::string run{};      // what must be equal for all learners
  int64_t step = 0;       // of the last round that its common weights have seen
  std::string hash{};     // of its part of the common weights
  int64_t last_step = 0;  // of the run
  // Learners that end a round, and how long it then waits for the others. 0: all end it
  int quorum = 0;
  int64_t grace_ms = 0;
};

enum class RoundStanding : uint8_t {
  kUnknown,  // nobody of that name is enrolled
  kWaiting,  // there is no head yet
  kIn,
  kBehind,
};

struct RoundOutcome {
  enum class Kind : uint8_t { kUnknown, kOpen, kDecided, kBehind };
  Kind kind = Kind::kOpen;
  std::vector<int> places{};  // that were in it, in order
  int donor = -1;             // the place that gives its state to those behind; -1: nobody needs it
  // kBehind: the learner's message of that round counts all the same
  bool has_counted = false;
};

// Not thread safe. `now` never goes back.
class RoundTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    int places = 1;
    std::chrono::milliseconds lease{10'000};  // without a word for so long, a learner is away
    PatienceOptions patience{};
  };

  explicit RoundTable(const Options& options);

  // Says that this rank is there, at first and then before every lease ends, and after each round
  // which weights it has come to.
  // Throws: ConfigError for one that does not belong to the others: one line
  RoundStanding enroll(const RoundMember& member, Time now);
  // Whether this rank has enrolled in this process; counts as a word.
  bool is_known(int place, int rank, const std::string& process, Time now);
  // This rank's message for the round of that step is whole. No more than a word for one that is
  // not in.
  void offer(int place, int rank, int64_t step, Time now);
  // Whether that learner has the weights of the head, of that step.
  bool has_head(int place, int64_t step) const;
  // What has become of that round for one that is known.
  RoundOutcome outcome(int place, int64_t step, Time now);
  // One that is behind fetches the state of the head: the next round waits for it.
  void note_fetch(int place) { fetching_.insert(place); }
  void leave(int place, int rank, const std::string& process);

  std::optional<int64_t> head_step() const;
  // After the last round: the place whose turn it is to give its state to the service, for those
  // that come later; -1: nobody's.
  int last_donor(Time now) const;
  // Of the round that was decided last, as long as its head counts.
  std::optional<int64_t> decided_step() const;
  // Whether all places have come to the last step of the run, and left.
  bool is_finished() const;
  bool is_empty(Time now) const;
  // Lines for people, since the last call: the first of them, if nobody takes them for long.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }

 private:
  struct Rank {
    RoundMember member{};
    Time seen{};
  };
  struct Place {
    std::string process{};
    std::set<std::string> former{};  // processes that have lost the place
    std::map<int, Rank> ranks{};
    bool is_told = false;  // that it is there
    bool is_late = false;  // what it has learned since its last round is in none yet
    int64_t counted = -1;  // step of the last round that its process was in
  };
  struct Head {
    int64_t step = 0;
    std::map<int, std::string> hashes{};  // of the ranks that have come to it
    int proved_by = -1;                   // the place that these are of
  };
  struct Decision {
    int64_t step = 0;
    std::map<int, std::string> processes{};  // by place
    int donor = -1;
  };

  void check_member(const RoundMember& member) const;
  int64_t newest_step(const RoundMember& member) const;
  Place& place_for(const RoundMember& member);
  void check_base(const RoundMember& member);
  bool is_there(const Place& place, Time now) const;
  bool is_in(const Place& place) const;
  bool will_be_in(int number, const Place& place) const;
  bool is_expected(int number, const Place& place, Time now) const;
  bool is_quorum_over(const std::set<int>& expected, Time now) const;
  void advance(Time now);
  void elect(Time now);
  void decide(const std::set<int>& offered, Time now);
  void choose_donor(Time now);
  void tell(std::string line);
  void tell_of_absence(Time now);
  std::set<int> whole_offers() const;

  Options options_;
  Patience patience_;
  std::map<int, Place> places_;
  std::optional<RoundMember> pattern_;  // of all members
  std::optional<Head> head_;
  int64_t floor_ = 0;             // the newest step that somebody has been seen to have
  std::optional<Time> headless_;  // since when nobody there has the head
  std::optional<Decision> decision_;
  std::set<int> fetching_;
  // The open round.
  int64_t step_ = 0;
  std::map<int, std::set<int>> offers_;  // ranks by place
  std::map<int, Time> arrivals_;
  std::set<int> finished_;
  std::vector<std::string> news_;
};

}  // namespace trireme::comm

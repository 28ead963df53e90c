#include "trireme/comm/rounds/round_table.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::comm {
namespace {

constexpr size_t kMostFormer = 64;                // processes per place
constexpr size_t kMostNews = 10'000;              // lines that nobody has taken
constexpr int64_t kMostGrace = int64_t{1} << 40;  // in milliseconds

std::string names_of(const std::set<int>& places) {
  std::string names;
  for (const int place : places) names += concat(names.empty() ? " " : ", ", place);
  return concat(places.size() == 1 ? "learner" : "learners", names);
}

// "train.seed = 1, the other's train.seed = 2": of texts that differ.
std::string first_difference(const std::string& text, const std::string& other) {
  TextReader lines(text), other_lines(other);
  std::string line, other_line;
  do {
    line.clear();
    other_line.clear();
    std::getline(lines, line);
    std::getline(other_lines, other_line);
  } while (line == other_line && (lines || other_lines));
  return concat(shown(line), ", the other's ", shown(other_line));
}

}  // namespace

RoundTable::RoundTable(const Options& options) : options_(options), patience_(options.patience) {
  TRIREME_CHECK(options.places >= 1 && options.places <= kMaxRoundPlaces, "learners is ",
                options.places, "; expected 1 to ", kMaxRoundPlaces);
}

void RoundTable::check_member(const RoundMember& member) const {
  const std::string name = concat("learner ", member.place);
  TRIREME_CHECK(member.num_places == options_.places, name,
                " has parallel.learners = ", member.num_places, ", and this service has ",
                options_.places, " places; give both the same number");
  TRIREME_CHECK(member.place >= 0 && member.place < options_.places, "outer.place is ",
                member.place, "; expected 0 to ", options_.places - 1);
  TRIREME_CHECK(member.num_ranks >= 1 && member.num_ranks <= kMaxRoundRanks && member.rank >= 0 &&
                    member.rank < member.num_ranks,
                name, " has a rank ", member.rank, " of ", member.num_ranks);
  TRIREME_CHECK(member.step >= 0, name, " has the weights of step ", member.step);
  TRIREME_CHECK(member.quorum >= 0 && member.quorum <= member.num_places && member.grace_ms >= 0 &&
                    member.grace_ms <= kMostGrace,
                name, " has outer.quorum = ", member.quorum, " and a grace of ", member.grace_ms,
                " ms; expected 0 to ", member.num_places, ", and 0 to ", kMostGrace, " ms");
  if (!pattern_) return;
  TRIREME_CHECK(member.run == pattern_->run, name, " has another config than learner ",
                pattern_->place, ": ", first_difference(member.run, pattern_->run),
                "; give all learners the same");
  TRIREME_CHECK(member.num_ranks == pattern_->num_ranks && member.last_step == pattern_->last_step,
                name, " has ", member.num_ranks, " ranks and trains to step ", member.last_step,
                ", and learner ", pattern_->place, " ", pattern_->num_ranks, " and ",
                pattern_->last_step, "; give all learners the same");
}

RoundTable::Place& RoundTable::place_for(const RoundMember& member) {
  Place& place = places_[member.place];
  if (place.process == member.process) return place;
  TRIREME_CHECK(!place.former.contains(member.process), "the place of learner ", member.place,
                " was taken by another process; start each outer.place once");
  if (!place.process.empty()) place.former.insert(place.process);
  if (place.former.size() > kMostFormer) place.former.erase(place.former.begin());
  place.process = member.process;
  place.ranks.clear();
  place.is_told = place.is_late = false;
  place.counted = -1;
  offers_.erase(member.place);
  arrivals_.erase(member.place);
  fetching_.erase(member.place);
  finished_.erase(member.place);
  return place;
}

// What this rank of this process has said of itself before; -1: nothing. A word that was on its way
// for longer may tell of an earlier step.
int64_t RoundTable::newest_step(const RoundMember& member) const {
  const auto place = places_.find(member.place);
  if (place == places_.end() || place->second.process != member.process) return -1;
  const auto rank = place->second.ranks.find(member.rank);
  return rank == place->second.ranks.end() ? -1 : rank->second.member.step;
}

// One whose weights are others than the head's of the same step, or newer than a head that has gone
// on, can never come together with the rest.
void RoundTable::check_base(const RoundMember& member) {
  if (!head_) return;
  if (member.step > head_->step) {
    TRIREME_CHECK(!decision_, "learner ", member.place, " has the weights of step ", member.step,
                  ", and the others have gone on without it from an earlier one to step ",
                  head_->step, "; let it begin in another output.folder");
    head_.reset();  // nothing has been decided since: the newest weights are the head
    offers_.clear();
    arrivals_.clear();
    return;
  }
  if (member.step < head_->step) return;
  const auto [known, is_first] = head_->hashes.try_emplace(member.rank, member.hash);
  if (is_first && head_->proved_by < 0) head_->proved_by = member.place;
  TRIREME_CHECK(known->second == member.hash, "learner ", member.place,
                " has other weights after the round of step ", member.step, " than learner ",
                head_->proved_by, ": ", member.hash, " and ", known->second, " on rank ",
                member.rank, "; let it begin in another output.folder");
}

RoundStanding RoundTable::enroll(const RoundMember& member, Time now) {
  if (pattern_ && member.run != pattern_->run && is_empty(now)) *this = RoundTable(options_);
  check_member(member);
  const bool is_older = newest_step(member) > member.step;
  if (!is_older) check_base(member);
  Place& place = place_for(member);
  if (!pattern_) pattern_ = member;
  if (!is_older) place.ranks[member.rank].member = member;
  place.ranks[member.rank].seen = now;
  floor_ = std::max(floor_, member.step);
  if (!place.is_told && is_there(place, now)) {
    place.is_told = true;
    tell(concat("learner ", member.place, " is here, with the weights of step ", member.step));
  }
  advance(now);
  if (!head_) return RoundStanding::kWaiting;
  if (!is_in(place)) return RoundStanding::kBehind;
  fetching_.erase(member.place);
  return RoundStanding::kIn;
}

bool RoundTable::is_known(int place, int rank, const std::string& process, Time now) {
  const auto found = places_.find(place);
  if (found == places_.end() || found->second.process != process) return false;
  const auto member = found->second.ranks.find(rank);
  if (member == found->second.ranks.end()) return false;
  member->second.seen = now;
  return true;
}

void RoundTable::offer(int place, int rank, int64_t step, Time now) {
  if (head_ && step > head_->step && is_in(places_.at(place))) {
    TRIREME_CHECK(offers_.empty() || step == step_, "learner ", place, " begins the round of step ",
                  step, ", and the others that of step ", step_,
                  "; give all learners the same outer.every");
    step_ = step;
    offers_[place].insert(rank);
    const auto num_ranks = static_cast<size_t>(pattern_->num_ranks);
    if (offers_[place].size() == num_ranks) arrivals_.try_emplace(place, now);
  }
  advance(now);
}

bool RoundTable::has_head(int place, int64_t step) const {
  const auto found = places_.find(place);
  return head_ && head_->step == step && found != places_.end() && is_in(found->second);
}

RoundOutcome RoundTable::outcome(int place, int64_t step, Time now) {
  advance(now);
  using Kind = RoundOutcome::Kind;
  const Place& asker = places_.at(place);
  const RoundOutcome behind{.kind = Kind::kBehind, .has_counted = asker.counted == step};
  if (decision_ && decision_->step == step) {
    const auto found = decision_->processes.find(place);
    if (found == decision_->processes.end() || found->second != asker.process) return behind;
    if (decision_->donor >= 0) choose_donor(now);
    RoundOutcome outcome{.kind = Kind::kDecided, .donor = decision_->donor};
    for (const auto& [each, process] : decision_->processes) outcome.places.push_back(each);
    return outcome;
  }
  const bool is_open = !head_ || (is_in(asker) && step > head_->step);
  return is_open ? RoundOutcome{.kind = Kind::kOpen} : behind;
}

void RoundTable::leave(int place, int rank, const std::string& process) {
  const auto found = places_.find(place);
  if (found == places_.end() || found->second.process != process) return;
  if (is_in(found->second) && head_->step == pattern_->last_step) finished_.insert(place);
  if (found->second.ranks.erase(rank) > 0 && found->second.is_told) {
    found->second.is_told = false;
    tell(concat("learner ", place, " has left"));
  }
}

std::optional<int64_t> RoundTable::head_step() const {
  return head_ ? std::optional(head_->step) : std::nullopt;
}

int RoundTable::last_donor(Time now) const {
  if (!head_ || !pattern_ || head_->step != pattern_->last_step) return -1;
  for (const auto& [number, place] : places_) {
    if (is_there(place, now) && is_in(place)) return number;
  }
  return -1;
}

std::optional<int64_t> RoundTable::decided_step() const {
  return decision_ ? std::optional(decision_->step) : std::nullopt;
}

bool RoundTable::is_finished() const {
  return finished_.size() == static_cast<size_t>(options_.places);
}

bool RoundTable::is_empty(Time now) const {
  return std::ranges::none_of(places_, [&](const auto& each) {
    return std::ranges::any_of(each.second.ranks, [&](const auto& rank) {
      return now - rank.second.seen <= options_.lease;
    });
  });
}

bool RoundTable::is_there(const Place& place, Time now) const {
  return pattern_ && place.ranks.size() == static_cast<size_t>(pattern_->num_ranks) &&
         std::ranges::all_of(place.ranks, [&](const auto& rank) {
           return now - rank.second.seen <= options_.lease;
         });
}

bool RoundTable::is_in(const Place& place) const {
  return head_ && pattern_ && place.ranks.size() == static_cast<size_t>(pattern_->num_ranks) &&
         std::ranges::all_of(place.ranks, [&](const auto& rank) {
           const auto known = head_->hashes.find(rank.first);
           return rank.second.member.step == head_->step &&
                  (known == head_->hashes.end() || known->second == rank.second.member.hash);
         });
}

// One that was in the decision still fetches its messages.
bool RoundTable::will_be_in(int number, const Place& place) const {
  if (!decision_ || !head_ || decision_->step != head_->step) return false;
  const auto found = decision_->processes.find(number);
  return found != decision_->processes.end() && found->second == place.process;
}

// Whether the open round waits for it.
bool RoundTable::is_expected(int number, const Place& place, Time now) const {
  if (!is_there(place, now)) return false;
  if (is_in(place) || will_be_in(number, place) || fetching_.contains(number)) return true;
  // One that trains on from older weights comes once more before the end, if there is a state for
  // it.
  const bool is_last = pattern_->quorum > 0 && step_ == pattern_->last_step;
  return is_last && place.is_late && decision_ && decision_->donor >= 0 &&
         is_there(places_.at(decision_->donor), now);
}

// Who has offered and then died counts on both sides.
bool RoundTable::is_quorum_over(const std::set<int>& expected, Time now) const {
  if (pattern_->quorum == 0 || step_ == pattern_->last_step) return false;
  std::set<int> all = whole_offers();
  all.insert(expected.begin(), expected.end());
  const size_t quorum = std::min(static_cast<size_t>(pattern_->quorum), all.size());
  if (arrivals_.size() < quorum) return false;
  std::vector<Time> times;
  for (const auto& [place, arrival] : arrivals_) times.push_back(arrival);
  std::ranges::sort(times);
  return now - times[quorum - 1] >= std::chrono::milliseconds(pattern_->grace_ms);
}

// With all places there, nobody elsewhere can have newer weights than the newest here. With fewer,
// one that is away may, so the others wait a lease for it; and once somebody has been seen with
// newer weights, they wait for these.
void RoundTable::elect(Time now) {
  const bool has_holder = head_ && std::ranges::any_of(places_, [&](const auto& each) {
                            return is_there(each.second, now) &&
                                   (is_in(each.second) || will_be_in(each.first, each.second));
                          });
  if (has_holder) return headless_.reset();
  if (!headless_) headless_ = now;
  const Place* newest = nullptr;
  int number = -1;
  size_t there = 0;
  for (const auto& [each, place] : places_) {
    if (!is_there(place, now)) continue;
    ++there;
    const int64_t step = place.ranks.begin()->second.member.step;
    // Some of its ranks have come to the end of a round, and the others are about to say so.
    if (std::ranges::any_of(place.ranks,
                            [&](const auto& rank) { return rank.second.member.step != step; })) {
      return;
    }
    if (newest != nullptr && step <= newest->ranks.begin()->second.member.step) continue;
    newest = &place;
    number = each;
  }
  if (newest == nullptr) return;
  const bool are_all = there == static_cast<size_t>(options_.places);
  if (!are_all && now - *headless_ < options_.lease) return;
  const int64_t step = newest->ranks.begin()->second.member.step;
  if (!are_all && step < floor_) return;
  head_.emplace(Head{.step = step, .proved_by = number});
  for (const auto& [rank, each] : newest->ranks) head_->hashes[rank] = each.member.hash;
  floor_ = step;
  headless_.reset();
  decision_.reset();
  for (auto& [each, place] : places_) {
    if (place.counted > step) place.counted = -1;  // in a round that was undone
  }
  fetching_.clear();
  offers_.clear();
  arrivals_.clear();
  tell(
      concat("learners go on from the weights of step ", step, ", which learner ", number, " has"));
}

std::set<int> RoundTable::whole_offers() const {
  std::set<int> whole;
  for (const auto& [place, arrival] : arrivals_) whole.insert(place);
  return whole;
}

void RoundTable::advance(Time now) {
  tell_of_absence(now);
  elect(now);
  const std::set<int> offered = whole_offers();
  if (!head_ || offered.empty()) return;
  Time first = now;
  for (const auto& [place, arrival] : arrivals_) first = std::min(first, arrival);
  const auto limit = patience_.limit();
  const bool is_over = limit && now - first > *limit;
  std::set<int> expected;
  for (const auto& [number, place] : places_) {
    if (is_expected(number, place, now)) expected.insert(number);
  }
  const bool all_offered = std::ranges::includes(offered, expected);
  if (all_offered || is_over || is_quorum_over(expected, now)) decide(offered, now);
}

void RoundTable::decide(const std::set<int>& offered, Time now) {
  Time first = now;
  for (const auto& [place, arrival] : arrivals_) first = std::min(first, arrival);
  for (const auto& [place, arrival] : arrivals_) {
    patience_.add(std::chrono::duration_cast<std::chrono::milliseconds>(arrival - first));
  }
  Decision decision{.step = step_};
  for (const int place : offered) decision.processes[place] = places_.at(place).process;
  std::set<int> without;
  for (auto& [number, place] : places_) {
    if (offered.contains(number)) {
      place.is_late = false;
      place.counted = step_;
      continue;
    }
    place.is_late = place.is_late || is_in(place);
    if (is_there(place, now)) without.insert(number);
  }
  tell(concat("round of step ", step_, ": ", names_of(offered),
              without.empty() ? "" : concat("; without ", names_of(without))));
  decision_ = std::move(decision);
  if (!without.empty()) choose_donor(now);
  head_.emplace(Head{.step = step_});
  fetching_.clear();
  offers_.clear();
  arrivals_.clear();
}

// The first of the round that is there; another one than before, if that has died.
void RoundTable::choose_donor(Time now) {
  for (const auto& [number, process] : decision_->processes) {
    const Place& place = places_.at(number);
    if (place.process != process || !is_there(place, now)) continue;
    decision_->donor = number;
    return;
  }
}

void RoundTable::tell(std::string line) {
  if (news_.size() < kMostNews) news_.push_back(std::move(line));
}

void RoundTable::tell_of_absence(Time now) {
  for (auto& [number, place] : places_) {
    if (!place.is_told || is_there(place, now)) continue;
    place.is_told = false;
    tell(concat("learner ", number, " has said nothing for ", options_.lease.count() / 1000.0,
                " s; the others go on without it"));
  }
}

}  // namespace trireme::comm

#include "trireme/launch/journal/first_errors.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

// More would not fit on a screen, and the logs have all of them.
constexpr size_t kMostErrors = 20;       // at once, that differ
constexpr size_t kFirstErrorLines = 10;  // of a long traceback, before what is left out

// The message without "rank 2 was", since the line begins with the rank.
std::string without_subject(int rank, std::string_view message) {
  const std::string subject = concat("rank ", rank);
  if (!message.starts_with(subject)) return std::string(message);
  std::string_view rest = message.substr(subject.size());
  for (const std::string_view next : {": ", " was ", " "}) {
    if (rest.starts_with(next)) return std::string(rest.substr(next.size()));
  }
  return std::string(message);
}

void append_prefixed(std::vector<std::string>& out, const std::set<int>& ranks,
                     const std::vector<std::string>& lines) {
  const std::string prefix = ranks_in_words(ranks) + ": ";
  for (const std::string& line : lines) out.push_back(prefix + line);
}

}  // namespace

std::vector<std::string> FirstErrors::add_line(int rank, LogStream stream, std::string_view line,
                                               Clock::time_point now) {
  RankState& state = ranks_[rank];
  const bool is_error = state.levels.next(stream, line) == LogLevel::kError;
  // Rank 0's lines are shown as they come, but an error may yet turn out to be a consequence.
  if (rank == 0 && (!is_error || (state.has_error && !is_lost_peer(line)))) {
    return {std::string(line)};
  }
  if (!is_error) return {};
  if (state.block.size() == kMaxErrorLines) {
    // The beginning of a traceback says where, its end what. The middle goes.
    state.block[kFirstErrorLines] = "...";
    state.block.erase(state.block.begin() + kFirstErrorLines + 1);
  }
  state.block.emplace_back(without_rank_prefix(line));
  // The exception is a traceback's last line, and only that tells what kind of error it is.
  if (!state.levels.is_in_traceback(stream)) take_block(rank, now);
  return {};
}

std::vector<std::string> FirstErrors::add_exit(int rank, std::string_view message, bool lost_peer,
                                               Clock::time_point now) {
  take_block(rank, now);
  RankState& state = ranks_[rank];
  Error* error = held_error_of(rank);
  if (error == nullptr) {
    // A rank that said nothing before it died. It is held like an error, so that those with the
    // same end become one line.
    held_.push_back({.ranks = {rank}, .lost_peer = true, .since = now});
    error = &held_.back();
  }
  // The error that ended the rank, if it was not its first.
  std::ranges::move(std::exchange(state.last, {}), std::back_inserter(error->lines));
  error->lines.push_back(without_subject(rank, message));
  error->lost_peer = lost_peer || state.lost_peer;
  error->is_cause = !error->lost_peer;
  return poll(now);
}

std::vector<std::string> FirstErrors::poll(Clock::time_point now) {
  // First the errors that stand for themselves: one of them may be the cause of a lost peer.
  std::vector<std::string> out = print_due(now);
  const auto is_late = [&](const Error& error) {
    return error.lost_peer && now - error.since >= kPatience;
  };
  if (std::ranges::any_of(held_, is_late))
    std::ranges::move(print_lost_peers(), std::back_inserter(out));
  return out;
}

std::vector<std::string> FirstErrors::finish() {
  for (auto& [rank, state] : ranks_) take_block(rank, {});
  std::vector<std::string> out = print_due(Clock::time_point::max());
  std::ranges::move(print_lost_peers(), std::back_inserter(out));
  ranks_.clear();
  has_cause_ = false;
  return out;
}

void FirstErrors::take_block(int rank, Clock::time_point now) {
  RankState& state = ranks_[rank];
  if (state.block.empty()) return;
  std::vector<std::string> lines = std::exchange(state.block, {});
  state.lost_peer = is_lost_peer(lines.back());
  if (std::exchange(state.has_error, true)) {
    state.last = std::move(lines);
  } else {
    held_.push_back(
        {.ranks = {rank}, .lines = std::move(lines), .lost_peer = state.lost_peer, .since = now});
  }
}

FirstErrors::Error* FirstErrors::held_error_of(int rank) {
  const auto found = std::ranges::find_if(
      held_, [rank](const Error& error) { return error.ranks.contains(rank); });
  return found == held_.end() ? nullptr : &*found;
}

// Errors that ended a rank come first. Ranks with the same error share an entry.
std::vector<std::string> FirstErrors::print_due(Clock::time_point now) {
  const auto is_due = [&](const Error& error) {
    return !error.lost_peer && now - kSettle >= error.since;
  };
  if (std::ranges::none_of(held_, is_due)) return {};
  // Equal lines of several ranks are one error with all their ranks.
  std::vector<Error> due;
  for (const Error& error : held_) {
    if (error.lost_peer) continue;
    const auto same = std::ranges::find_if(due, [&](const Error& other) {
      return other.lines == error.lines && other.is_cause == error.is_cause;
    });
    if (same != due.end()) {
      same->ranks.insert(error.ranks.begin(), error.ranks.end());
    } else if (is_due(error)) {
      due.push_back(error);
    }
  }
  const auto was_printed = [&](const Error& error) {
    return !error.lost_peer && std::ranges::any_of(due, [&](const Error& other) {
      return other.lines == error.lines && other.is_cause == error.is_cause;
    });
  };
  std::erase_if(held_, was_printed);
  std::ranges::stable_partition(due, [](const Error& error) { return error.is_cause; });
  std::vector<std::string> out;
  std::set<int> others;
  for (size_t i = 0; i < due.size(); ++i) {
    // Remembered beyond this call: peers that are told later stand behind a cause that was printed.
    has_cause_ |= due[i].is_cause;
    if (i < kMostErrors) append_prefixed(out, due[i].ranks, due[i].lines);
    if (i >= kMostErrors) others.insert(due[i].ranks.begin(), due[i].ranks.end());
  }
  if (!others.empty()) append_prefixed(out, others, {"other errors, which are in the logs"});
  return out;
}

// One line for all, behind the cause; without a known cause, behind the first of them.
std::vector<std::string> FirstErrors::print_lost_peers() {
  std::vector<std::string> out;
  std::set<int> ranks;
  bool is_first = !has_cause_;
  for (const Error& error : held_) {
    if (!error.lost_peer) continue;
    if (std::exchange(is_first, false)) {
      append_prefixed(out, error.ranks, error.lines);
    } else {
      ranks.insert(error.ranks.begin(), error.ranks.end());
    }
  }
  std::erase_if(held_, [](const Error& error) { return error.lost_peer; });
  if (!ranks.empty()) append_prefixed(out, ranks, {"stopped because a peer was lost"});
  return out;
}

std::string ranks_in_words(const std::set<int>& ranks) {
  std::vector<std::string> parts;
  for (auto first = ranks.begin(); first != ranks.end();) {
    auto last = first;
    auto next = std::next(first);
    while (next != ranks.end() && *next == *last + 1) last = next++;
    parts.push_back(*first == *last ? std::to_string(*first) : concat(*first, "-", *last));
    first = next;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < parts.size() ? ", " : " and ") + parts[i];
  }
  return text;
}

}  // namespace trireme::launch

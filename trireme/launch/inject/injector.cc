#include "trireme/launch/inject/injector.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "trireme/base/random/random.h"

namespace trireme::launch {
namespace {

// The last finished step of those that the injection means; the farthest rank when it means any.
int64_t step_of(const Injection& injection, const RunMoment& moment) {
  int64_t step = -1;
  for (const auto& [rank, last] : moment.steps) {
    if (injection.rank >= 0 && rank != injection.rank) continue;
    const auto host = moment.hosts.find(rank);
    const bool is_elsewhere =
        !injection.host.empty() && host != moment.hosts.end() && host->second != injection.host;
    if (!is_elsewhere) step = std::max(step, last);
  }
  return step;
}

}  // namespace

Injector::Injector(std::vector<Injection> injections, uint64_t seed)
    : waiting_(std::move(injections)), seed_(seed) {
  for (Injection& injection : waiting_) {
    // Drawn now, so that the moment does not depend on how often due() is called.
    if (injection.trigger != Trigger::kWithin) continue;
    const auto most = static_cast<size_t>(std::max<int64_t>(1, injection.after.count()));
    injection.after = std::chrono::milliseconds(draw(most));
    injection.trigger = Trigger::kAfter;
  }
}

size_t Injector::draw(size_t below) {
  // A counter-based generator: the sequence is that of the seed, whatever the run did meanwhile.
  const RandomKey key = random_key(seed_, "injector");
  const auto number =
      static_cast<size_t>(random_uniform(key, num_drawn_++) * static_cast<double>(below));
  // The product may round up to `below` itself.
  return std::min(number, below - 1);
}

bool Injector::is_due(const Injection& injection, const RunMoment& moment) const {
  if (moment.since_start < injection.after) return false;
  switch (injection.trigger) {
    case Trigger::kAfter:
    case Trigger::kWithin: return true;
    // "At step N" is while it is being done: the step before it is the last one finished.
    case Trigger::kAtStep: return step_of(injection, moment) >= injection.step - 1;
    case Trigger::kInSave: return moment.is_saving;
    case Trigger::kInRecovery: return moment.is_recovering;
  }
  return false;
}

bool Injector::choose_target(Injection& injection, const RunMoment& moment) {
  if (injection.target == Target::kRank) {
    if (moment.hosts.empty()) return false;
    auto chosen = moment.hosts.find(injection.rank);
    if (injection.rank < 0) {
      chosen =
          std::next(moment.hosts.begin(), static_cast<std::ptrdiff_t>(draw(moment.hosts.size())));
    }
    if (chosen == moment.hosts.end()) return false;
    std::tie(injection.rank, injection.host) = *chosen;
    return true;
  }
  if (injection.fault == InjectedFault::kJoin) return true;
  // Who can be hit depends on the target: an agent needs no running worker.
  std::vector<std::string> hosts = moment.agents;
  if (injection.target == Target::kWorkers) {
    hosts.clear();
    for (const auto& [rank, host] : moment.hosts) hosts.push_back(host);
  }
  // Sorted, so that a draw does not depend on the order in which hosts joined.
  std::ranges::sort(hosts);
  hosts.erase(std::ranges::unique(hosts).begin(), hosts.end());
  if (hosts.empty()) return false;
  if (injection.host.empty()) injection.host = hosts[draw(hosts.size())];
  return std::ranges::find(hosts, injection.host) != hosts.end();
}

std::vector<Injection> Injector::due(const RunMoment& moment) {
  std::vector<Injection> due;
  std::erase_if(waiting_, [&](const Injection& waiting) {
    if (!is_due(waiting, moment)) return false;
    Injection injection = waiting;
    // Stays in the list and waits until its target is there.
    if (!choose_target(injection, moment)) return false;
    due.push_back(std::move(injection));
    return true;
  });
  return due;
}

}  // namespace trireme::launch

// A seeded random sequence of injections. A pure function of its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/inject/injection.h"

namespace trireme::launch::inline internal {

// One kind of event and how often it is drawn, relative to the others.
struct CampaignEvent {
  Injection injection{};  // its trigger counts only for kInSave and kInRecovery
  double weight = 1;
};

struct Campaign {
  uint64_t seed = 1;
  int num_events = 20;
  // The pause from one event to the next: uniform in this range.
  std::chrono::milliseconds least_pause{5000};
  std::chrono::milliseconds most_pause{15000};
  int num_ranks = 1;
  std::vector<std::string> hosts{};
  std::vector<CampaignEvent> events{};
};

// The kinds of events that make sense for so many hosts, all with weight 1: kill a worker (in a
// step, in a save, in a recovery), an agent, all workers of a host; stop a worker; partition, delay
// and loss (several hosts); leave and join (several hosts); a full disk.
std::vector<CampaignEvent> default_events(size_t num_hosts);

// The campaign's injections, with ranks and hosts drawn, in order of time. Those in a save or a
// recovery wait for the next one after their time.
// Throws: ConfigError when there is no event to draw
std::vector<Injection> draw(const Campaign& campaign);

}  // namespace trireme::launch::inline internal

// A seeded random sequence of injections. A pure function of its arguments.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/launch/inject/injection.h"

namespace trireme::launch {

// One kind of event and how often it is drawn, relative to the others.
struct CampaignEvent {
  Injection injection{};  // its trigger counts only if it is kInSave or kInRecovery
  double weight = 1;
};

struct Campaign {
  uint64_t seed = 1;
  int num_events = 20;
  // The pause from one event to the next, and before the first: uniform in this range.
  std::chrono::milliseconds least_pause{5000};
  std::chrono::milliseconds most_pause{15000};
  std::vector<CampaignEvent> events{};
};

// Kinds of events for `num_hosts` hosts: kill a worker (at any time, in a save, in a recovery), all
// workers of a host; stop a worker; fill the disk. With several hosts also: kill an agent; cut the
// network, make it late and lossy; a host leaves and joins.
std::vector<CampaignEvent> default_events(size_t num_hosts);

// The campaign's injections in order of time. Ranks and hosts that an event leaves open stay open:
// the injector chooses among those that are there. Durations are drawn between half and one and a
// half times the event's. An event in a save or a recovery waits for the first one after its time.
// Throws: ConfigError when no event has a weight
std::vector<Injection> draw(const Campaign& campaign);

// "campaign seed=7 events=200 pause=5s..15s"; every word but the first may be missing. The events
// are the default ones. Whether `text` begins with that word is is_campaign().
// Throws: ConfigError, as parse_injections()
bool is_campaign(std::string_view text);
Campaign parse_campaign(std::string_view text, size_t num_hosts);

}  // namespace trireme::launch

#include "trireme/launch/inject/campaign.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/launch/inject/injection.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

// Bounds the plan's memory for a number typed wrong.
constexpr int kMostEvents = 100'000;

// A fixed count, so that no event shifts the draws of those after it.
// Each event takes this many random numbers.
enum Draw { kPause, kKind, kDuration, kNumDraws };

milliseconds scaled(milliseconds duration, double factor) {
  return milliseconds(static_cast<int64_t>(static_cast<double>(duration.count()) * factor));
}

}  // namespace

std::vector<CampaignEvent> default_events(size_t num_hosts) {
  const char* const anywhere =
      "kill rank=any; kill rank=any in save; kill rank=any in recovery; kill host=any; "
      "stop rank=any for 5s; fill host=any for 5s";
  const char* const between_hosts =
      "kill agent host=any; partition host=any for 10s; delay host=any by 50ms for 10s; "
      "loss host=any by 5% for 10s; leave host=any; join host=any";
  std::vector<CampaignEvent> events;
  for (const Injection& injection : parse_injections(anywhere)) events.push_back({injection});
  if (num_hosts > 1) {
    for (const Injection& injection : parse_injections(between_hosts)) {
      events.push_back({injection});
    }
  }
  return events;
}

std::vector<Injection> draw(const Campaign& campaign) {
  double total = 0;
  for (const CampaignEvent& event : campaign.events) total += std::max(0.0, event.weight);
  TRIREME_CHECK(total > 0, "a campaign has ", campaign.events.size(),
                " kinds of events, none with a weight; expected at least one");
  const RandomKey key = random_key(campaign.seed, "injections");
  std::vector<Injection> injections;
  milliseconds time{0};
  for (int i = 0; i < campaign.num_events; ++i) {
    const auto uniform = [&](Draw what) {
      return random_uniform(key, static_cast<uint64_t>(i) * kNumDraws + what);
    };
    time +=
        campaign.least_pause + scaled(campaign.most_pause - campaign.least_pause, uniform(kPause));
    double left = uniform(kKind) * total;
    auto chosen = campaign.events.begin();
    // Rounding may leave a rest behind the last weight. Then the last kind with a weight is taken.
    for (auto event = campaign.events.begin(); event != campaign.events.end(); ++event) {
      if (event->weight <= 0) continue;
      chosen = event;
      left -= event->weight;
      if (left < 0) break;
    }
    Injection injection = chosen->injection;
    injection.duration = scaled(injection.duration, 0.5 + uniform(kDuration));
    injection.after = time;
    // These triggers wait for a moment that no time can name.
    const bool waits =
        injection.trigger == Trigger::kInSave || injection.trigger == Trigger::kInRecovery;
    if (!waits) injection.trigger = Trigger::kAfter;
    injections.push_back(std::move(injection));
  }
  return injections;
}

bool is_campaign(std::string_view text) { return Words(text).peek() == "campaign"; }

Campaign parse_campaign(std::string_view text, size_t num_hosts) {
  TRIREME_CHECK(text.size() <= 4096, "--inject has ", text.size(),
                " bytes; expected at most 4096 for a campaign");
  Words words(text);
  Campaign campaign{.events = default_events(num_hosts)};
  if (!words.take("campaign")) words.fail(words.peek(), "campaign");
  while (!words.peek().empty()) {
    std::string_view value;
    if (words.take_value("seed", value)) {
      campaign.seed =
          static_cast<uint64_t>(words.integer(value, 0, std::numeric_limits<int64_t>::max()));
    } else if (words.take_value("events", value)) {
      campaign.num_events = static_cast<int>(words.integer(value, 1, kMostEvents));
    } else if (words.take_value("pause", value)) {
      const size_t dots = value.find("..");
      if (dots == std::string_view::npos) words.fail(value, "two times, such as 5s..15s");
      campaign.least_pause = words.duration(value.substr(0, dots));
      campaign.most_pause = words.duration(value.substr(dots + 2));
      if (campaign.most_pause < campaign.least_pause) words.fail(value, "the shorter time first");
    } else {
      words.fail(words.peek(), "seed=N, events=N or pause=TIME..TIME");
    }
  }
  return campaign;
}

}  // namespace trireme::launch

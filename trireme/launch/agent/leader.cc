#include "trireme/launch/agent/leader.h"

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"

namespace trireme::launch {
namespace {

// After its lease an agent needs this long to kill its workers.
constexpr std::chrono::seconds kLeaseMargin{1};

CoordinatorOptions coordinator_options(const AgentOptions& options) {
  return {.min_hosts = options.min_hosts,
          .max_hosts = options.max_hosts,
          .num_spares = options.num_spares,
          // Random: an agent that is started again with the same id begins another job, and its
          // ranks must not meet those of the last one.
          .job = concat(options.job, "-", unique_name()),
          .program = options.program,
          .join_timeout = options.join_timeout,
          .last_call = options.last_call,
          .patience = options.lease + kLeaseMargin,
          .budget = options.budget,
          .policy = options.policy};
}

}  // namespace

Leader::Leader(const AgentOptions& options, Line& line, JobOutput& output)
    : line_(line),
      output_(output),
      is_alone_(options.endpoint.empty()),
      coordinator_(coordinator_options(options), Clock::now()),
      drill_(options.injections, options.injection_seed, Clock::now()) {}

void Leader::stop(const std::string& reason, int exit_code) {
  coordinator_.request_stop(reason, exit_code, Clock::now());
}

void Leader::lead() {
  const Clock::time_point now = Clock::now();
  const std::vector<SeenHost> hosts = line_.hosts();
  coordinator_.decide(hosts, now);
  for (const Injection& injection : drill_.due(coordinator_.plan(), hosts, now)) {
    coordinator_.inject(injection.host, injection.rank, to_string(injection));
  }
  for (const Event& event : coordinator_.take_events()) {
    tell(event);
    output_.write(event);
  }
  // Only a changed plan is sent. Agents take each plan for something to carry out.
  if (coordinator_.plan().version != line_.plan().version) line_.publish(coordinator_.plan());
}

// The agents report starts and ends themselves. On one host the failed worker has been shown.
void Leader::tell(const Event& event) {
  const bool is_told = event.kind == EventKind::kStart || event.kind == EventKind::kEnd;
  if (event.kind == EventKind::kRecovery) {
    // The first epoch recovers nothing; it begins.
    if (event.epoch == 1) return;
    output_.say(concat("run     ", event.text, format(" %.2f s after that", event.seconds)),
                event.epoch);
  } else if (!is_told && !is_alone_) {
    output_.say(concat("run     ", event.text), event.epoch);
  }
}

bool Leader::is_over() const { return coordinator_.is_over(line_.hosts(), Clock::now()); }

}  // namespace trireme::launch

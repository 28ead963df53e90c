#include "trireme/launch/agent/agent.h"

#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/random/entropy.h"
#include "trireme/launch/agent/crew.h"
#include "trireme/launch/agent/job_output.h"
#include "trireme/launch/agent/leader.h"
#include "trireme/launch/agent/line.h"
#include "trireme/launch/agent/store_line.h"
#include "trireme/launch/jobs/notice_watch.h"
#include "trireme/launch/process/exit_codes.h"
#include "trireme/launch/process/signal_watch.h"
#include "trireme/launch/watchdog/watch.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kWatchInterval{500};
// Output waits so long, and up to so much, for a worker to name the run's folder.
constexpr std::chrono::seconds kFolderPatience{2};
constexpr size_t kMaxHeldBytes = size_t{1} << 20;
constexpr std::chrono::seconds kRejoinPatience{60};
constexpr std::chrono::seconds kGoodbyePatience{1};

// A port that nobody uses now. Another program may take it before rank 0 does; rank 0 then fails
// with one line, and the next epoch has another port.
int free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), any, length) != 0 || getsockname(socket.get(), any, &length) != 0)
    return 0;
  return ntohs(address.sin_port);
}

std::unique_ptr<Line> make_line(const AgentOptions& options, std::optional<bool> leads,
                                std::chrono::milliseconds timeout) {
  if (options.endpoint.empty()) return make_local_line();
  return make_store_line({.meeting = {.address = options.endpoint,
                                      .listen = options.listen,
                                      .job = options.job,
                                      .timeout = timeout,
                                      .answer_patience = options.lease},
                          .leads = leads});
}

std::optional<bool> leads(const AgentOptions& options) {
  return options.node_rank < 0 ? std::nullopt : std::optional(options.node_rank == 0);
}

}  // namespace

class Agent {
 public:
  Agent(const AgentOptions& options, AgentObserver& observer);
  int run();

 private:
  void wait();
  void take_signals();
  void take_notices();
  void follow(const Plan& plan);
  void leave_after(const std::string& notice);
  void leave_job();
  void drill();
  void watch();
  void check_lease();
  void rejoin();
  void choose_folder();
  void say_goodbye();
  HostReport make_report() const;
  bool is_over() const;

  const AgentOptions options_;
  JobOutput output_;
  SignalWatch signals_;
  std::unique_ptr<Line> line_;
  std::optional<Leader> leader_;
  Crew crew_;
  DrillPerformer drill_;
  NoticeWatch notices_;
  Watch watch_;
  std::vector<Observation> observations_;
  Plan plan_;  // the newest that was carried out
  std::string id_ = unique_name();
  int port_ = free_port();
  bool is_admitted_ = false;  // a plan has had this host
  bool is_leaving_ = false;
  bool is_ending_ = false;
  bool is_fenced_ = false;
  bool knows_run_ = false;  // a worker has named its folder
  int num_stop_signals_ = 0;
  std::string notice_;
  std::optional<std::string> refusal_;
  std::optional<Clock::time_point> held_since_;
  Clock::time_point next_watch_ = Clock::now();
};

Agent::Agent(const AgentOptions& options, AgentObserver& observer)
    : options_(options),
      output_(options.host, observer),
      signals_({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}),
      line_(make_line(options, leads(options), options.join_timeout)),
      crew_(options_, output_),
      drill_(options.host),
      notices_({.command = options.notice_command, .interval = options.notice_interval}),
      watch_({.host = options.host}) {
  output_.set_folder(options_.folder);
  if (line_->leads()) leader_.emplace(options_, *line_, output_);
}

int Agent::run() {
  while (!is_over()) {
    wait();
    take_signals();
    take_notices();
    crew_.update(/*has_to_run=*/plan_.phase == Phase::kRun && !is_fenced_);
    check_lease();
    follow(line_->plan());
    const bool is_free = plan_.phase == Phase::kRun && plan_.find(id_) == nullptr;
    if (is_leaving_ && is_free && !is_ending_ && !leader_) leave_job();
    drill();
    watch();
    line_->report(make_report());
    // Without its leader a job cannot go on.
    if (leader_) leader_->lead(is_leaving_ ? notice_ : "");
    choose_folder();
    output_.poll(Clock::now());
  }
  output_.flush();
  say_goodbye();
  const std::string& reason = refusal_ ? *refusal_ : plan_.reason;
  const int code = refusal_ ? kUserError : plan_.exit_code;
  if (!reason.empty()) output_.say(reason, crew_.epoch(), /*is_error=*/code != 0);
  return code;
}

void Agent::wait() {
  std::vector<pollfd> ready = {{signals_.descriptor(), POLLIN, 0},
                               {line_->descriptor(), POLLIN, 0}};
  crew_.add_descriptors(ready);
  poll(ready.data(), ready.size(), static_cast<int>(kTick.count()));
  uint64_t count = 0;
  if ((ready[1].revents & POLLIN) != 0) {
    static_cast<void>(!read(line_->descriptor(), &count, sizeof(count)));
  }
}

// Asked to stop: alone it stops the job; among other hosts, this one leaves. Asked twice, it does
// not wait for a save.
void Agent::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal != SIGUSR1 && ++num_stop_signals_ > 1) crew_.kill();
    if (NoticeWatch::is_notice(*signal)) {
      notices_.take_signal(*signal);
    } else {
      leave_after(concat("signal ", *signal, " (", strsignal(*signal), ")"));
    }
  }
}

void Agent::take_notices() {
  while (const auto notice = notices_.poll()) {
    leave_after(notice->text.empty() ? notice->source : concat(notice->source, ": ", notice->text));
  }
  const auto problem = notices_.take_problem();
  if (problem) output_.say(*problem, crew_.epoch(), /*is_error=*/true);
}

void Agent::leave_after(const std::string& notice) {
  notice_ = notice;
  is_leaving_ = true;
}

void Agent::follow(const Plan& plan) {
  if (plan.version == plan_.version || is_fenced_) return;
  plan_ = plan;
  if (const RefusedHost* refused = plan.find_refused(id_)) {
    refusal_ = refused->reason;
    return crew_.kill();
  }
  const bool is_new_epoch = plan.epoch != crew_.epoch();
  if (plan.phase != Phase::kGather) crew_.set_epoch(plan.epoch);
  const PlannedHost* place = plan.find(id_);
  is_admitted_ |= place != nullptr;
  switch (plan.phase) {
    case Phase::kGather:
      if (is_leaving_ && !leader_) leave_job();
      break;
    case Phase::kRun:
      if (!is_new_epoch) break;
      port_ = free_port();
      if (place != nullptr) crew_.begin_epoch(plan, *place);
      break;
    case Phase::kLeave: crew_.end_epoch(plan); break;
    case Phase::kStop:
      is_ending_ = true;
      crew_.stop(plan.is_graceful);
      break;
  }
  if (plan.is_spare(id_) && place == nullptr && !is_ending_ && !is_leaving_) crew_.warm_up();
}

// The workers of this host have saved, and the next epoch is without them.
void Agent::leave_job() {
  is_ending_ = true;
  crew_.stop(/*is_graceful=*/false);
}

HostReport Agent::make_report() const {
  return {.id = id_,
          .name = options_.host,
          .address = line_->own_address(),
          .port = port_,
          .node_rank = options_.node_rank,
          .num_workers = options_.num_workers,
          .epoch = crew_.epoch(),
          .is_leaving = is_leaving_,
          .notice = notice_,
          .is_ending = is_ending_,
          .keeps_workers = crew_.keeps_workers(),
          .program = is_admitted_ ? "" : options_.program,
          .workers = crew_.reports(),
          .observations = observations_};
}

void Agent::drill() {
  DrillTargets targets = crew_.targets();
  targets.leave = [this] { leave_after("injected"); };
  for (const std::string& line : drill_.perform(line_->plan(), targets, Clock::now())) {
    output_.say(line, crew_.epoch());
  }
}

void Agent::watch() {
  const Clock::time_point now = Clock::now();
  if (now < next_watch_) return;
  next_watch_ = now + kWatchInterval;
  observations_ = watch_.poll(crew_.at_work());
}

// A host that the leader cannot hear must not go on: the others may have begun without it.
void Agent::check_lease() {
  if (leader_) return;
  const auto is_late = [this] { return Clock::now() - line_->last_contact() > options_.lease; };
  const bool is_lost = !line_->problem().empty();
  if (!is_fenced_ && (is_late() || is_lost)) {
    is_fenced_ = true;
    crew_.kill();
    output_.say(concat("run     ", options_.host, " cannot reach the leader at ", options_.endpoint,
                       is_lost ? ": " + line_->problem() : "", "; its workers are killed"),
                crew_.epoch(), /*is_error=*/true);
  }
  if (!is_fenced_ || !crew_.is_idle()) return;
  if (is_lost) rejoin();
  if (is_late()) return;
  // The leader has counted this host out. It comes back as a new one.
  is_fenced_ = false;
  id_ = unique_name();
  is_admitted_ = false;
  crew_.renew();
}

void Agent::rejoin() {
  // Its threads may still wait for a network that is cut.
  std::thread([old = std::move(line_)]() mutable { old.reset(); }).detach();
  line_ = make_line(options_, /*leads=*/false, kRejoinPatience);
}

void Agent::choose_folder() {
  if (const std::filesystem::path folder = crew_.folder(); !folder.empty() && !knows_run_) {
    knows_run_ = true;
    output_.set_folder(folder);  // unless the user chose another
    watch_.set_folder(folder / "recorder");
    drill_.set_folder(folder);
  }
  if (output_.has_folder()) return;
  if (output_.num_held_bytes() == 0) return;
  if (!held_since_) held_since_ = Clock::now();
  const bool is_late = Clock::now() - *held_since_ > kFolderPatience;
  if (!is_late && output_.num_held_bytes() < kMaxHeldBytes && !is_ending_) return;
  const std::filesystem::path folder = std::filesystem::path("runs") / plan_.job;
  output_.set_folder(folder);
  output_.say(concat("run     logs in ", folder.string(), "; see them with: trireme logs ",
                     folder.string()),
              crew_.epoch());
}

bool Agent::is_over() const {
  if (!crew_.is_idle() || (!refusal_ && !is_ending_)) return false;
  return refusal_ || !leader_ || leader_->is_over();
}

// The leader learns that the workers have ended, and need not find out by waiting.
void Agent::say_goodbye() {
  if (leader_) return;
  const Clock::time_point now = Clock::now();
  line_->report(make_report());
  while (line_->last_contact() < now && Clock::now() < now + kGoodbyePatience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int run_agent(const AgentOptions& options, AgentObserver& observer) {
  return Agent(options, observer).run();
}

}  // namespace trireme::launch::inline internal

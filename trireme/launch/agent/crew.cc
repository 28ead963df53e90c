#include "trireme/launch/agent/crew.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/agent/binding.h"
#include "trireme/launch/process/exit_codes.h"

namespace trireme::launch::inline internal {

Crew::Crew(const AgentOptions& options, JobOutput& output)
    : options_(options),
      output_(output),
      cores_(options.binds_cores ? divide_cores(options.num_workers) : std::vector<CoreSet>()) {
  renew();
}

void Crew::renew() {
  epoch_ = 0;
  workers_.clear();
  for (int i = 0; i < options_.num_workers; ++i) workers_.emplace_back(worker_options(i));
}

WorkerOptions Crew::worker_options(int local_rank) const {
  WorkerOptions options{.command = options_.command,
                        .environment = options_.environment,
                        .max_restarts = options_.budget.max_restarts,
                        .grace = options_.grace};
  if (!cores_.empty()) {
    options.cores = cores_[local_rank];
    options.environment.emplace("OMP_NUM_THREADS", std::to_string(options.cores->count()));
  }
  return options;
}

void Crew::add_descriptors(std::vector<pollfd>& to) const {
  for (const Worker& worker : workers_) worker.add_descriptors(to);
}

Worker::OnOutput Crew::output_of(const Worker& worker) {
  return [this, &worker](LogStream stream, std::string_view text) {
    // A spare writes into the agent's log: it has no rank.
    const WorkerReport report = worker.report().value_or(WorkerReport());
    output_.add_output(report.rank, stream, epoch_, report.step, text);
  };
}

void Crew::update(bool has_to_run) {
  const Clock::time_point now = Clock::now();
  for (Worker& worker : workers_) {
    worker.read(output_of(worker));
    if (worker.update(now, output_of(worker))) note_end(worker, has_to_run);
  }
}

void Crew::note_end(Worker& worker, bool has_to_run) {
  const WorkerReport& report = *worker.report();
  const bool is_asked = !has_to_run && report.signal != 0;
  const bool is_failure = report.state == WorkerState::kFailed && !is_asked;
  output_.add_exit(report.rank, epoch_, report.step,
                   is_failure ? describe(report, /*host=*/"") : "", report.code == kPeerLost);
  // Its successor starts while the others leave the epoch.
  const bool has_successor = report.signal != 0 || report.code == kPeerLost;
  if (is_failure && has_successor && worker.speaks_link()) worker.warm_up();
}

void Crew::warm_up() {
  for (Worker& worker : workers_) worker.warm_up();
}

void Crew::begin_epoch(const Plan& plan, const PlannedHost& place) {
  const bool is_one_host = plan.hosts.size() == 1;
  const std::string job = concat(plan.job, "-", plan.epoch);
  meeting_.reset();
  if (is_one_host) meeting_.emplace(job);
  Assignment assignment{
      .join = {.epoch = plan.epoch,
               .size = plan.num_ranks(),
               .local_size = place.num_ranks,
               .job = job,
               .store = is_one_host ? "" : concat("tcp://", plan.store_host, ":", plan.store_port),
               .reason = plan.reason},
      .num_restarts = plan.num_restarts,
      .master_host = is_one_host ? "127.0.0.1" : plan.store_host,
      .master_port = plan.store_port,
      .node_rank = static_cast<int>(&place - plan.hosts.data()),
      .num_nodes = static_cast<int>(plan.hosts.size())};
  for (int i = 0; i < place.num_ranks; ++i) {
    assignment.join.rank = place.first_rank + i;
    assignment.join.local_rank = i;
    workers_[i].take(assignment);
  }
  tell_epoch(plan, place);
}

// "run     epoch 2: ranks 2-3 of 4 on node2, cores 0 | 1; host node3 joins".
void Crew::tell_epoch(const Plan& plan, const PlannedHost& place) {
  std::string cores;
  for (int i = 0; i < place.num_ranks && !cores_.empty(); ++i) {
    cores += concat(cores.empty() ? ", cores " : " | ", to_text(cores_[i]));
  }
  const int last = place.first_rank + place.num_ranks - 1;
  const std::string ranks =
      place.num_ranks == 1 ? concat("rank ", last) : concat("ranks ", place.first_rank, "-", last);
  output_.say(concat("run     epoch ", plan.epoch, ": ", ranks, " of ", plan.num_ranks(), " on ",
                     place.name, cores, plan.reason.empty() ? "" : "; " + plan.reason),
              epoch_);
}

void Crew::end_epoch(const Plan& plan) {
  output_.flush();
  for (Worker& worker : workers_) {
    if (plan.is_graceful) {
      worker.finish({.epoch = plan.epoch, .reason = plan.reason}, Clock::now());
    } else {
      worker.leave({.epoch = plan.epoch, .reason = plan.reason}, Clock::now());
    }
  }
}

void Crew::stop(bool is_graceful) {
  for (Worker& worker : workers_) worker.stop(is_graceful, Clock::now());
}

void Crew::kill() {
  for (Worker& worker : workers_) worker.kill();
}

bool Crew::is_idle() const {
  return std::ranges::none_of(workers_, [](const Worker& worker) { return worker.is_alive(); });
}

bool Crew::keeps_workers() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return worker.speaks_link(); });
}

std::vector<WorkerReport> Crew::reports() const {
  std::vector<WorkerReport> reports;
  for (const Worker& worker : workers_) {
    if (worker.report()) reports.push_back(*worker.report());
  }
  return reports;
}

std::vector<WatchedProcess> Crew::at_work() const {
  std::vector<WatchedProcess> processes;
  for (const Worker& worker : workers_) {
    const bool works = worker.is_alive() && worker.report()->state == WorkerState::kRunning;
    if (works) processes.push_back({worker.report()->rank, worker.process_id()});
  }
  return processes;
}

std::filesystem::path Crew::folder() const {
  const auto named =
      std::ranges::find_if(workers_, [](const Worker& worker) { return !worker.folder().empty(); });
  return named == workers_.end() ? "" : named->folder();
}

DrillTargets Crew::targets() {
  return {.process_ids =
              [this](int rank) {
                std::vector<int64_t> ids;
                for (const WatchedProcess& process : at_work()) {
                  if (rank < 0 || process.rank == rank) ids.push_back(process.process_id);
                }
                return ids;
              },
          .end_with =
              [this](int rank, int code) {
                for (Worker& worker : workers_) {
                  if (worker.is_alive() && worker.report()->rank == rank) worker.pretend(code);
                }
              }};
}

}  // namespace trireme::launch::inline internal

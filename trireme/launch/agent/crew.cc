#include "trireme/launch/agent/crew.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/process/rank_environment.h"
#include "trireme/launch/process/signal_watch.h"

#ifdef TRIREME_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace trireme::launch {
namespace {

// An agent that runs kills its workers at the end of the lease and says why. After this long it
// must have been stopped. The leader waits for twice as long.
constexpr std::chrono::milliseconds kGuardMargin{500};

}  // namespace

struct WatchThread::State {
  explicit State(WatchOptions options) : watch(std::move(options)) {}

  Watch watch;  // of the thread
  std::mutex mutex;
  std::vector<Observation> seen;
};

WatchThread::WatchThread(WatchOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

std::vector<Observation> WatchThread::poll(const std::vector<WatchedProcess>& processes) {
  // The queue has room for one task of size 1: while the thread still looks, a second look is
  // dropped and not queued.
  tasks_.post(1, [state = state_, folder = folder_, processes] {
    if (!folder.empty()) state->watch.set_folder(folder);
    std::vector<Observation> seen = state->watch.poll(processes);
    const std::lock_guard lock(state->mutex);
    state->seen = std::move(seen);
  });
  // The state is shared with the thread, which may hang in a file system and outlive this object.
  const std::lock_guard lock(state_->mutex);
  std::vector<Observation> seen = state_->seen;
  // A rank may have ended since.
  std::erase_if(seen, [&](const Observation& observation) {
    return std::ranges::find(processes, observation.rank, &WatchedProcess::rank) == processes.end();
  });
  return seen;
}

Crew::Crew(const AgentOptions& options, JobOutput& output)
    : options_(options),
      output_(output),
      cores_(options.binds_cores
                 ? divide_cores(options.num_workers,
                                options.endpoint.empty() ? 1 : kFewestCoresOverNetwork)
                 : std::vector<CoreSet>()) {
  renew();
}

void Crew::renew() {
  // An epoch below all others: the host is as new, and its next plan is a new epoch for it.
  epoch_ = 0;
  workers_.clear();
  for (int i = 0; i < options_.num_workers; ++i) workers_.emplace_back(worker_options(i));
}

WorkerOptions Crew::worker_options(int local_rank) {
  WorkerOptions options{.command = options_.command,
                        .environment = options_.environment,
                        .guard = guard_.get(),
                        .max_restarts = options_.budget.max_restarts,
                        .grace = options_.grace};
  options.environment[kLeaseVariable] =
      // Rounded up: a rank that waits too short for its predecessor's lock ends the job.
      std::to_string(std::chrono::ceil<std::chrono::seconds>(options_.lease).count());
  if (!cores_.empty()) {
    options.cores = cores_[local_rank];
    // emplace: a value that the user has set stays.
    options.environment.emplace("OMP_NUM_THREADS", std::to_string(options.cores->count()));
  }
  return options;
}

std::function<void()> Crew::lease_renewal() const {
  // Weak: the line's thread may call this after the crew's end, and must not keep the guard alive.
  return [guard = std::weak_ptr(guard_), patience = options_.lease + kGuardMargin] {
    if (const auto alive = guard.lock()) alive->renew(patience);
  };
}

void Crew::add_descriptors(std::vector<pollfd>& to) const {
  for (const Worker& worker : workers_) worker.add_descriptors(to);
}

Worker::OnOutput Crew::output_of(const Worker& worker) {
  return [this, &worker](LogStream stream, std::string_view text) {
    // A spare writes into the agent's log: it has no rank.
    const WorkerReport report = worker.report().value_or(WorkerReport());
    output_.add_output(report.rank, stream, epoch_, report.step.value_or(-1), text);
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
  // Between epochs, a worker that a signal ends was asked to end.
  const bool is_asked = !has_to_run && report.signal != 0;
  const bool is_failure = report.state == WorkerState::kFailed && !is_asked;
  output_.add_exit(report.rank, epoch_, report.step.value_or(-1),
                   is_failure ? describe(report, /*host=*/"") : "", report.code == kPeerLost);
  // Its successor starts while the others leave the epoch.
  // An exit code of its own choosing, such as 2, would come again. A signal or a lost peer need
  // not.
  const bool has_successor = report.signal != 0 || report.code == kPeerLost;
  if (is_failure && has_successor && worker.speaks_link()) worker.warm_up();
}

void Crew::warm_up() {
  for (Worker& worker : workers_) worker.warm_up();
}

void Crew::begin_epoch(const Plan& plan, const PlannedHost& place) {
  const bool is_one_host = plan.hosts.size() == 1;
  const std::string job = concat(plan.job, "-", plan.epoch);
  // Before the next one is made: the destructor removes the file of the epoch before.
  meeting_.reset();
  if (is_one_host) meeting_.emplace(job);
  Assignment assignment{
      .join = {.epoch = plan.epoch,
               .size = plan.num_ranks(),
               .local_size = place.num_ranks,
               .job = job,
               // Ranks of one host meet over shared memory and need no store that listens.
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
  // Ends what the terminal holds: in the next epoch each rank may show a first error again.
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
    const bool works =
        worker.is_alive() && worker.report() && worker.report()->state == WorkerState::kRunning;
    if (works) processes.push_back({worker.report()->rank, worker.process_id()});
  }
  return processes;
}

std::filesystem::path Crew::folder() const {
  const auto named =
      std::ranges::find_if(workers_, [](const Worker& worker) { return !worker.folder().empty(); });
  // The first worker's folder counts; all ranks of a run have the same.
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
                  // A warm spare has no rank, and so no report.
                  if (worker.is_alive() && worker.report() && worker.report()->rank == rank) {
                    worker.pretend(code);
                  }
                }
              }};
}

namespace {

// hwloc is optional, so that the library builds on a bare machine.
#ifdef TRIREME_HAVE_HWLOC

// Empty when the topology cannot be read.
std::vector<CoreSet> divide_by_topology(int num_workers) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return {};
  std::vector<CoreSet> parts;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    std::vector<hwloc_cpuset_t> sets(num_workers);
    if (hwloc_distrib(topology, &root, 1, sets.data(), num_workers, INT_MAX, 0) == 0) {
      for (const hwloc_cpuset_t set : sets) {
        CoreSet part;
        int core = -1;
        while ((core = hwloc_bitmap_next(set, core)) >= 0) {
          if (static_cast<size_t>(core) < part.size()) part.set(core);
        }
        parts.push_back(part);
        hwloc_bitmap_free(set);
      }
    }
  }
  hwloc_topology_destroy(topology);
  return parts;
}

#else

std::vector<CoreSet> divide_by_topology(int) { return {}; }

#endif

// Consecutive numbers.
std::vector<CoreSet> divide_by_number(const CoreSet& cores, int num_workers) {
  std::vector<CoreSet> parts(num_workers);
  const size_t count = cores.count();
  size_t index = 0;
  for (size_t core = 0; core < cores.size(); ++core) {
    // Multiplying before dividing spreads the remainder: part sizes differ by one core at most.
    if (cores.test(core)) parts[index++ * num_workers / count].set(core);
  }
  return parts;
}

}  // namespace

std::vector<CoreSet> divide_cores(int num_workers, int fewest) {
  const CoreSet cores = allowed_cores();
  const auto needed = static_cast<size_t>(std::max(num_workers, 0)) * static_cast<size_t>(fewest);
  // A worker with too few cores would share them in turns. The kernel balances better than that.
  if (num_workers < 1 || cores.count() < needed) return {};
  std::vector<CoreSet> parts = divide_by_topology(num_workers);
  // The topology ignores this process's own mask, as of a container or taskset. Where a part has no
  // allowed core left, the division by number is used for all.
  bool is_usable = !parts.empty();
  for (CoreSet& part : parts) {
    part &= cores;
    is_usable &= part.any();
  }
  return is_usable ? parts : divide_by_number(cores, num_workers);
}

std::string to_text(const CoreSet& cores) {
  std::string text;
  for (size_t first = 0; first < cores.size(); ++first) {
    if (!cores.test(first)) continue;
    size_t last = first;
    while (last + 1 < cores.size() && cores.test(last + 1)) ++last;
    text += concat(text.empty() ? "" : ",", first);
    if (last > first) text += concat("-", last);
    first = last;
  }
  return text;
}

}  // namespace trireme::launch

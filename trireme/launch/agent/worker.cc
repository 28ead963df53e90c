#include "trireme/launch/agent/worker.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/launch/process/rank_environment.h"

namespace trireme::launch {

// A worker is a process and its part in an epoch, and the two change at different times. process_
// may be there without a report, as for a spare that waits for its first epoch; a report stays
// after the process has ended, until the leader has seen how. take() keeps a process that waits,
// because loading a program costs seconds of each recovery, and starts a new one when the link does
// not take the message. All descriptors are non-blocking at this end only. A worker's own writes
// wait when the agent is slow, so its output is complete and not lost.

namespace {

// Read at a time of a worker's output, so that a talkative one does not delay the others.
constexpr size_t kReadBytes = size_t{64} << 10;

Environment environment_of(const WorkerOptions& options, const Assignment& assignment) {
  const Join& join = assignment.join;
  Environment variables = rank_environment(options.environment,
                                           // Programs other than ours ask torchrun's variables, so
                                           // all of them are set, also where ours need none.
                                           {.rank = static_cast<int>(join.rank),
                                            .size = static_cast<int>(join.size),
                                            .local_rank = static_cast<int>(join.local_rank),
                                            .local_size = static_cast<int>(join.local_size)},
                                           join.job);
  // The job's name is random. On one host that suffices for the ranks to meet.
  if (join.store.empty()) variables["TRIREME_LAUNCH"] = join.job;
  variables["MASTER_ADDR"] = assignment.master_host;
  variables["MASTER_PORT"] = std::to_string(assignment.master_port);
  variables["GROUP_RANK"] = std::to_string(assignment.node_rank);
  variables["GROUP_WORLD_SIZE"] = std::to_string(assignment.num_nodes);
  variables["ROLE_RANK"] = variables["RANK"];
  variables["ROLE_WORLD_SIZE"] = variables["WORLD_SIZE"];
  variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(assignment.num_restarts);
  variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  variables["TRIREME_EPOCH"] = std::to_string(join.epoch);
  variables["TRIREME_ERROR_FD"] = std::to_string(kFirstInherited);
  variables["TRIREME_AGENT_FD"] = std::to_string(kFirstInherited + 1);
  return variables;
}

// Without a rank: it comes over the link.
Environment environment_without_rank(const WorkerOptions& options) {
  Environment variables = options.environment;
  std::erase_if(variables, [](const auto& each) { return comm::is_rank_variable(each.first); });
  variables["TRIREME_ERROR_FD"] = std::to_string(kFirstInherited);
  variables["TRIREME_AGENT_FD"] = std::to_string(kFirstInherited + 1);
  return variables;
}

}  // namespace

bool Worker::is_waiting() const {
  if (!process_ || is_warm_) return process_.has_value();
  return report_->state == WorkerState::kLeft || report_->state == WorkerState::kSpare;
}

void Worker::take(const Assignment& assignment) {
  deadline_.reset();
  epoch_ = assignment.join.epoch;
  // Sending tells whether it lives: a process that has just died refuses, and a new one is started
  // instead.
  const bool takes_over_link = is_waiting() && link_->send(assignment.join);
  report_ = WorkerReport{.rank = static_cast<int>(assignment.join.rank)};
  is_warm_ = false;
  // A process that was kept has shown that it reports steps. Nothing is known of a new one.
  if (takes_over_link) report_->step = 0;
  if (takes_over_link) return;
  start(concat("rank ", assignment.join.rank), environment_of(options_, assignment));
}

void Worker::warm_up() {
  if (process_) return;
  start(report_ ? concat("rank ", report_->rank) : "a spare", environment_without_rank(options_));
  is_warm_ = true;
}

void Worker::start(const std::string& name, Environment environment) {
  // The old process must be gone before its link and pipes are replaced.
  process_.reset();
  speaks_link_ = false;
  link_.emplace();
  Pipe output = make_pipe(name);
  Pipe errors = make_pipe(name);
  // Non-blocking, because a process that it left behind may hold the write end open for ever.
  Pipe last_words = make_pipe(name, O_NONBLOCK);
  // Only this end: the worker's own writes may wait.
  for (const Pipe* pipe : {&output, &errors}) fcntl(pipe->read_end.get(), F_SETFL, O_NONBLOCK);
  process_.emplace(
      ChildOptions{.command = options_.command,
                   .environment = std::move(environment),
                   .inherited = {last_words.write_end.get(), link_->child_descriptor()},
                   .output = output.write_end.get(),
                   .errors = errors.write_end.get(),
                   .cores = options_.cores,
                   .guard = options_.guard},
      name);
  // Otherwise the socket stays open here and the worker's end would not show.
  link_->close_child();
  output_ = std::move(output.read_end);
  errors_ = std::move(errors.read_end);
  last_words_ = std::move(last_words.read_end);
}

bool Worker::is_at_work() const {
  return process_ && report_ && report_->state == WorkerState::kRunning;
}

void Worker::leave(const Leave& message, Clock::time_point now) {
  if (!is_at_work()) return;
  // A program that does not speak the link can only leave an epoch by ending.
  if (!speaks_link_ || !link_->send(message)) return stop(/*is_graceful=*/false, now);
  deadline_ = now + options_.grace;
}

void Worker::finish(const Finish& message, Clock::time_point now) {
  if (!is_at_work()) return;
  if (!speaks_link_ || !link_->send(message)) return stop(/*is_graceful=*/false, now);
  deadline_ = now + options_.graceful_grace;
}

void Worker::stop(bool is_graceful, Clock::time_point now) {
  if (!process_) return;
  process_->signal(SIGTERM);
  // After SIGTERM, so that the request is pending when the process goes on.
  process_->signal(SIGCONT);  // a stopped one could not end
  deadline_ = now + (is_graceful ? options_.graceful_grace : options_.grace);
}

void Worker::kill() {
  if (process_) process_->kill_group();
}

void Worker::add_descriptors(std::vector<pollfd>& to) const {
  if (output_.is_open()) to.push_back({output_.get(), POLLIN, 0});
  if (errors_.is_open()) to.push_back({errors_.get(), POLLIN, 0});
  if (link_ && !link_->is_closed()) to.push_back({link_->descriptor(), POLLIN, 0});
}

void Worker::drain(Descriptor& from, LogStream stream, const OnOutput& on_output) {
  if (!from.is_open()) return;
  std::array<char, kReadBytes> buffer;
  const ssize_t size = ::read(from.get(), buffer.data(), buffer.size());
  if (size > 0) on_output(stream, std::string_view(buffer.data(), static_cast<size_t>(size)));
  if (size == 0) from.close();  // the worker has ended, or closed it
}

void Worker::read(const OnOutput& on_output) {
  read_link();
  drain(output_, LogStream::kOut, on_output);
  drain(errors_, LogStream::kErr, on_output);
}

void Worker::read_link() {
  if (!link_ || link_->is_closed()) return;
  try {
    while (const auto message = link_->receive()) take_message(*message);
  } catch (const ConfigError& error) {
    // The worker has a different version or is broken: it cannot take part.
    if (report_) report_->message = error.what();
    // A worker that speaks something else cannot be told to leave, so it must not go on.
    kill();
  }
}

void Worker::take_message(const ToAgent& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) {
    speaks_link_ = true;
    folder_ = hello->folder;
    if (report_ && !report_->step) report_->step = 0;
  } else if (!report_) {
    return;  // it has no epoch yet
  } else if (const auto* done = std::get_if<StepDone>(&message)) {
    // Late words of an epoch that this worker has left say nothing about the new one.
    if (done->epoch != epoch_) return;
    report_->step = done->step;
    if (report_->first_step == 0) report_->first_step = done->step;
  } else if (const auto* left = std::get_if<Left>(&message)) {
    if (left->epoch != epoch_) return;
    report_->state = WorkerState::kLeft;
    // "step" is dropped when the agent's socket is full, "left" is not. The larger number is right.
    report_->step = std::max(report_->step, std::optional(left->step));
    report_->message = left->error;
    // It has left in time; the deadline would kill a process that waits for its next epoch.
    deadline_.reset();
  } else if (std::get<Spare>(message).epoch == epoch_) {
    report_->state = WorkerState::kSpare;
  }
}

bool Worker::update(Clock::time_point now, const OnOutput& on_output) {
  if (!process_) return false;
  // kill() only sends. The end is collected by a later turn, so no turn waits for it.
  if (deadline_ && now > *deadline_) kill();
  auto status = process_->reap_group();
  if (!status) return false;
  // An injected exit code: the process was killed, and the drill says how it is to look.
  if (const auto code = std::exchange(pretended_code_, std::nullopt)) status = {*code, 0};
  // Once more after the end: what it wrote last is still in the pipes.
  read(on_output);
  process_.reset();
  deadline_.reset();
  // A spare that dies is not a failure of the epoch. take() starts another process when needed.
  if (std::exchange(is_warm_, false)) return false;  // the one before it has been reported
  std::array<char, 4096> words;
  const ssize_t size = ::read(last_words_.get(), words.data(), words.size());
  // A read that fails means no last words.
  std::string message(words.data(), static_cast<size_t>(std::max<ssize_t>(0, size)));
  while (message.ends_with('\n')) message.pop_back();
  const bool is_done = status->code == 0;
  report_->state = is_done ? WorkerState::kDone : WorkerState::kFailed;
  report_->code = status->code;
  report_->signal = status->signal;
  if (!message.empty()) report_->message = message;
  return true;
}

}  // namespace trireme::launch

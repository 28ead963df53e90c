#include "trireme/launch/membership/report.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/launch/membership/limits.h"

namespace trireme::launch::inline internal {
namespace {

constexpr Choice<WorkerState> kWorkerStates[] = {{"running", WorkerState::kRunning},
                                                 {"left", WorkerState::kLeft},
                                                 {"spare", WorkerState::kSpare},
                                                 {"done", WorkerState::kDone},
                                                 {"failed", WorkerState::kFailed}};

nlohmann::json to_value(const WorkerReport& worker) {
  return {{"state", name_of(kWorkerStates, worker.state)},
          {"rank", worker.rank},
          {"step", worker.step},
          {"first_step", worker.first_step},
          {"code", worker.code},
          {"signal", worker.signal},
          {"message", worker.message.substr(0, kMaxReasonBytes)}};
}

WorkerReport to_worker(const JsonView& value) {
  return {.state = choose(kWorkerStates, "state", value.at("state").word()),
          .rank = static_cast<int>(value.at("rank").integer(-1, kMaxRanks)),
          .step = value.at("step").integer(0),
          .first_step = value.at("first_step").integer(0),
          .code = static_cast<int>(value.at("code").integer(-1, 255)),
          .signal = static_cast<int>(value.at("signal").integer(0, 128)),
          .message = value.at("message").text().substr(0, kMaxReasonBytes)};
}

}  // namespace

std::string to_json(const HostReport& report) {
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerReport& worker : report.workers) workers.push_back(to_value(worker));
  return nlohmann::json{{"id", report.id},
                        {"name", report.name},
                        {"address", report.address},
                        {"port", report.port},
                        {"node_rank", report.node_rank},
                        {"num_workers", report.num_workers},
                        {"epoch", report.epoch},
                        {"is_leaving", report.is_leaving},
                        {"notice", report.notice.substr(0, kMaxReasonBytes)},
                        {"is_ending", report.is_ending},
                        {"keeps_workers", report.keeps_workers},
                        {"program", report.program.substr(0, kMaxProgramBytes)},
                        {"beat", report.beat},
                        {"clock_us", report.clock_us},
                        {"workers", std::move(workers)},
                        {"observations", to_json(report.observations)}}
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

HostReport parse_report(std::string_view text, const std::string& source) {
  const nlohmann::json root = parse_json(text, source, kMessageLimits);
  const JsonView view(root, source);
  HostReport report{.id = view.at("id").word(),
                    .name = view.at("name").word(),
                    .address = view.at("address").word(),
                    .port = static_cast<int>(view.at("port").integer(0, 65535)),
                    .node_rank = static_cast<int>(view.at("node_rank").integer(-1, kMaxRanks)),
                    .num_workers = static_cast<int>(view.at("num_workers").integer(1, kMaxWorkers)),
                    .epoch = static_cast<int>(view.at("epoch").integer(0, kMaxEpoch)),
                    .is_leaving = view.at("is_leaving").boolean(),
                    .notice = view.at("notice").text().substr(0, kMaxReasonBytes),
                    .is_ending = view.at("is_ending").boolean(),
                    .keeps_workers = view.at("keeps_workers").boolean(),
                    .program = view.at("program").text().substr(0, kMaxProgramBytes),
                    .beat = view.at("beat").integer(0),
                    .clock_us = view.at("clock_us").integer(0)};
  for (const JsonView& worker : view.at("workers").elements()) {
    report.workers.push_back(to_worker(worker));
  }
  report.observations =
      parse_observations(view.at("observations").text(), source + ": observations");
  TRIREME_CHECK(static_cast<int>(report.workers.size()) <= report.num_workers, source, " has ",
                report.workers.size(),
                " workers; expected at most num_workers = ", report.num_workers);
  return report;
}

std::string describe(const WorkerReport& worker, const std::string& host) {
  const std::string who = concat(worker.rank < 0 ? "a worker" : concat("rank ", worker.rank),
                                 host.empty() ? "" : " on " + host);
  if (worker.signal != 0) {
    return concat(who, " was killed by signal ", worker.signal, " (", strsignal(worker.signal),
                  worker.signal == 9 ? ", by someone or for lack of memory)" : ")");
  }
  if (worker.state == WorkerState::kLeft)
    return concat(who, " lost its peers: ", shown(worker.message, 160));
  const std::string how = concat(who, " exited with code ", worker.code);
  return worker.message.empty() ? how : concat(how, ": ", worker.message);
}

}  // namespace trireme::launch::inline internal

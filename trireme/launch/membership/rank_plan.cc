#include "trireme/launch/membership/rank_plan.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr Choice<Phase> kPhases[] = {{"gather", Phase::kGather},
                                     {"run", Phase::kRun},
                                     {"leave", Phase::kLeave},
                                     {"stop", Phase::kStop}};

template <typename Hosts>
auto find_host(const Hosts& hosts, std::string_view id) {
  const auto found = std::ranges::find_if(hosts, [&](const auto& host) { return host.id == id; });
  return found == hosts.end() ? nullptr : &*found;
}

}  // namespace

int Plan::num_ranks() const {
  return hosts.empty() ? 0 : hosts.back().first_rank + hosts.back().num_ranks;
}

const PlannedHost* Plan::find(std::string_view id) const { return find_host(hosts, id); }

const RefusedHost* Plan::find_refused(std::string_view id) const { return find_host(refused, id); }

bool Plan::is_spare(std::string_view id) const { return std::ranges::count(spares, id) > 0; }

bool Plan::has_counted_out(std::string_view id) const {
  return std::ranges::count(counted_out, id) > 0;
}

std::string to_json(const Plan& plan) {
  nlohmann::json hosts = nlohmann::json::array();
  for (const PlannedHost& host : plan.hosts) {
    hosts.push_back({{"id", host.id},
                     {"name", host.name},
                     {"first_rank", host.first_rank},
                     {"num_ranks", host.num_ranks}});
  }
  nlohmann::json refused = nlohmann::json::array();
  for (const RefusedHost& host : plan.refused) {
    refused.push_back({{"id", host.id}, {"reason", host.reason}});
  }
  nlohmann::json injections = nlohmann::json::array();
  for (const PlannedInjection& each : plan.injections) {
    injections.push_back({{"number", each.number}, {"host", each.host}, {"text", each.text}});
  }
  nlohmann::json linked = nlohmann::json::array();
  for (const LinkedHost& host : plan.linked) {
    linked.push_back({{"id", host.id}, {"address", host.address}, {"port", host.port}});
  }
  return nlohmann::json{{"version", plan.version},
                        {"phase", name_of(kPhases, plan.phase)},
                        {"epoch", plan.epoch},
                        {"job", plan.job},
                        {"hosts", std::move(hosts)},
                        {"store_host", plan.store_host},
                        {"store_port", plan.store_port},
                        {"is_graceful", plan.is_graceful},
                        // A reason may quote a worker's message; a plan goes to every host.
                        {"reason", plan.reason.substr(0, kMaxReasonBytes)},
                        {"exit_code", plan.exit_code},
                        {"num_restarts", plan.num_restarts},
                        {"refused", std::move(refused)},
                        {"spares", plan.spares},
                        {"counted_out", plan.counted_out},
                        {"injections", std::move(injections)},
                        {"links_asked", plan.links_asked},
                        {"linked", std::move(linked)}}
      // Bytes that are no UTF-8 come from workers' messages, and must not make a plan that cannot
      // be read.
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

Plan parse_plan(std::string_view text) {
  const std::string source = "the leader's plan";
  const nlohmann::json root = parse_json(text, source, kMessageLimits);
  const JsonView view(root, source);
  Plan plan{.version = view.at("version").integer(0),
            .phase = choose(kPhases, "phase", view.at("phase").word()),
            .epoch = static_cast<int>(view.at("epoch").integer(0, kMaxEpoch)),
            .job = view.at("job").word(),
            .store_host = view.at("store_host").text(),
            .store_port = static_cast<int>(view.at("store_port").integer(0, 65535)),
            .is_graceful = view.at("is_graceful").boolean(),
            .reason = view.at("reason").text(),
            .exit_code = static_cast<int>(view.at("exit_code").integer(0, 255)),
            .num_restarts = static_cast<int>(view.at("num_restarts").integer(0, kMaxEpoch))};
  int next_rank = 0;
  for (const JsonView& host : view.at("hosts").elements()) {
    plan.hosts.push_back(
        {.id = host.at("id").word(),
         .name = host.at("name").word(),
         // Ranks are the sum of those before. A plan with a gap would let ranks wait for nobody.
         .first_rank = static_cast<int>(host.at("first_rank").integer(next_rank, next_rank)),
         .num_ranks = static_cast<int>(host.at("num_ranks").integer(1, kMaxWorkers))});
    next_rank += plan.hosts.back().num_ranks;
  }
  for (const JsonView& host : view.at("refused").elements()) {
    plan.refused.push_back({host.at("id").word(), host.at("reason").text()});
  }
  for (const JsonView& id : view.at("spares").elements()) plan.spares.push_back(id.word());
  for (const JsonView& id : view.at("counted_out").elements()) {
    plan.counted_out.push_back(id.word());
  }
  for (const JsonView& each : view.at("injections").elements()) {
    plan.injections.push_back(
        {each.at("number").integer(1), each.at("host").word(), each.at("text").text()});
  }
  plan.links_asked = view.at("links_asked").integer(0);
  for (const JsonView& host : view.at("linked").elements()) {
    plan.linked.push_back({host.at("id").word(), host.at("address").word(),
                           static_cast<int>(host.at("port").integer(1, 65535))});
  }
  return plan;
}

}  // namespace trireme::launch

#include "trireme/train/callbacks/callbacks.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {
namespace {

void dispatch(Callback& callback, Event event, RunView& run,
              const std::filesystem::path& checkpoint) {
  switch (event) {
    case Event::kStart: return callback.on_start(run);
    case Event::kGradients: return callback.on_gradients(run);
    case Event::kEvaluate: return callback.on_evaluate(run);
    case Event::kStep: return callback.on_step(run);
    case Event::kCheckpoint: return callback.on_checkpoint(run, checkpoint);
    case Event::kStop: return callback.on_stop(run);
  }
}

// The first letter of a rank's report of a call that failed; one that did not has none.
enum Failure : char { kError = 'e', kConfig = 'c', kCheckpoint = 'k', kBug = 'i' };

std::string report_of(const std::function<void()>& call) {
  const auto report = [](Failure kind, const std::exception& error) {
    return static_cast<char>(kind) + std::string(error.what());
  };
  try {
    call();
    return "";
  } catch (const CommError&) {
    throw;  // nothing can be agreed any more
  } catch (const ConfigError& error) {
    return report(kConfig, error);
  } catch (const CheckpointError& error) {
    return report(kCheckpoint, error);
  } catch (const InternalError& error) {
    return report(kBug, error);
  } catch (const Error& error) {
    return report(kError, error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(kError, error);
  } catch (const std::exception& error) {
    return report(kBug, error);
  }
}

// Throws what the first rank that failed threw.
void throw_first(std::span<const std::string> reports, const std::string& callback, Event event) {
  const auto first = std::ranges::find_if(reports, [](const auto& one) { return !one.empty(); });
  if (first == reports.end()) return;
  const std::string message =
      concat("the callback ", callback, " failed on rank ", first - reports.begin(), " in ",
             name_of(kEvents, event), ": ", first->substr(1));
  switch (first->front()) {
    case kConfig: throw ConfigError(message);
    case kCheckpoint: throw CheckpointError(message);
    case kBug: throw InternalError(message);
    default: throw Error(message);
  }
}

}  // namespace

void agree(comm::Communicator& world, CallbackRequests& requests) {
  const std::vector<double> all =
      gather(world, {requests.checkpoint ? 1.0 : 0.0, requests.stop ? 1.0 : 0.0});
  bool stops = false;
  for (size_t at = 0; at < all.size(); at += 2) {
    requests.checkpoint = requests.checkpoint || all[at] != 0;
    stops = stops || all[at + 1] != 0;
  }
  if (!stops) return;
  const std::string mine =
      requests.stop ? (requests.stop->for_good ? '1' : '0') + requests.stop->reason : "";
  for (const std::string& text : comm::all_gather_strings(world, mine)) {
    if (text.empty()) continue;
    requests.stop = {text.substr(1), text[0] == '1'};
    return;
  }
}

Callbacks::Callbacks(std::span<NamedCallback> callbacks, const RunConfig& config,
                     OnCallbackWait on_wait)
    : on_wait_(std::move(on_wait)) {
  for (NamedCallback& named : callbacks) {
    if (hears(named, config)) callbacks_.push_back(&named);
  }
}

bool Callbacks::wants_gradients(int64_t step) const {
  return std::ranges::any_of(callbacks_, [step](const NamedCallback* named) {
    return named->callback->wants_gradients(step);
  });
}

verify::ProbeSink* Callbacks::probes(int64_t step) {
  verify::ProbeSink* sink = nullptr;
  const std::string* whose = nullptr;
  for (NamedCallback* const named : callbacks_) {
    verify::ProbeSink* const found = named->callback->probes(step);
    if (found == nullptr) continue;
    TRIREME_CHECK(sink == nullptr, "the callbacks ", *whose, " and ", named->name,
                  " both want the probes of step ", step, "; expected one: switch the other off");
    sink = found;
    whose = &named->name;
  }
  return sink;
}

void Callbacks::call(Event event, RunView& run, const std::filesystem::path& checkpoint) {
  if (!callbacks_.empty() && !group_) {
    group_ = run.world().split(0, run.world().rank(), "callbacks");
  }
  for (NamedCallback* const named : callbacks_) {
    if (event == Event::kGradients && !named->callback->wants_gradients(run.metrics().step)) {
      continue;
    }
    const auto report = [&](const checkpoint::Peers& /*peers*/) {
      return report_of([&] { dispatch(*named->callback, event, run, checkpoint); });
    };
    const auto on_wait = [&](std::span<const int> ranks, std::chrono::milliseconds waited) {
      if (on_wait_) on_wait_(named->name, ranks, waited);
    };
    throw_first(checkpoint::gather_or_throw(*group_, report, on_wait), named->name, event);
  }
}

void Callbacks::build(const std::vector<parallel::Shard>& shards) {
  for (NamedCallback* const named : callbacks_) named->callback->build(shards);
}

std::vector<checkpoint::Entry> Callbacks::entries() const { return wanted(states()).entries; }

std::map<std::string, std::string> Callbacks::states() const {
  std::map<std::string, std::string> states;
  for (const NamedCallback* const named : callbacks_)
    states[named->name] = named->callback->state();
  return states;
}

Callbacks::Wanted Callbacks::wanted(const std::map<std::string, std::string>& saved) const {
  Wanted wanted;
  for (const auto& [name, state] : saved) {
    const auto found = std::ranges::find(callbacks_, name, &NamedCallback::name);
    if (found == callbacks_.end()) {
      wanted.ignored.push_back(callback_tensor(name, ""));
      continue;
    }
    for (checkpoint::Entry& entry : (*found)->callback->entries()) {
      entry.name = callback_tensor(name, entry.name);
      wanted.entries.push_back(std::move(entry));
    }
  }
  return wanted;
}

void Callbacks::restore(const std::map<std::string, std::string>& saved) {
  for (NamedCallback* const named : callbacks_) {
    const auto found = saved.find(named->name);
    if (found != saved.end()) named->callback->restore(found->second);
  }
}

}  // namespace trireme::train

#include "trireme/train/callbacks/callbacks.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train::inline internal {
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

// How a call ended on a rank. The first failing rank's decides for all.
enum class Failure { kNone, kError, kConfig, kCheckpoint, kBug };

[[noreturn]] void fail(Failure failure, const std::string& message) {
  if (failure == Failure::kConfig) throw ConfigError(message);
  if (failure == Failure::kCheckpoint) throw CheckpointError(message);
  if (failure == Failure::kBug) throw InternalError(message);
  throw Error(message);
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

Callbacks::Callbacks(std::span<NamedCallback> callbacks, const RunConfig& config) {
  for (NamedCallback& named : callbacks) {
    if (hears(named, config)) callbacks_.push_back(&named);
  }
}

bool Callbacks::wants_gradients(int64_t step) const {
  return std::ranges::any_of(callbacks_, [step](const NamedCallback* named) {
    return named->callback->wants_gradients(step);
  });
}

void Callbacks::call(Event event, RunView& run, const std::filesystem::path& checkpoint) {
  for (NamedCallback* const named : callbacks_) {
    if (event == Event::kGradients && !named->callback->wants_gradients(run.metrics().step)) {
      continue;
    }
    Failure failure = Failure::kNone;
    std::string message;
    const auto note = [&](Failure kind, const std::exception& error) {
      failure = kind;
      message = concat("the callback ", named->name, " failed on rank ", run.world().rank(), " in ",
                       name_of(kEvents, event), ": ", error.what());
    };
    try {
      dispatch(*named->callback, event, run, checkpoint);
    } catch (const CommError&) {
      throw;  // nothing can be agreed any more
    } catch (const ConfigError& error) {
      note(Failure::kConfig, error);
    } catch (const CheckpointError& error) {
      note(Failure::kCheckpoint, error);
    } catch (const InternalError& error) {
      note(Failure::kBug, error);
    } catch (const Error& error) {
      note(Failure::kError, error);
    } catch (const std::filesystem::filesystem_error& error) {
      note(Failure::kError, error);
    } catch (const std::exception& error) {
      note(Failure::kBug, error);
    }
    const std::vector<double> all = gather(run.world(), {static_cast<double>(failure)});
    const auto first = std::ranges::find_if(all, [](double value) { return value != 0; });
    if (first == all.end()) continue;
    const std::vector<std::string> messages = comm::all_gather_strings(run.world(), message);
    fail(static_cast<Failure>(*first), messages[static_cast<size_t>(first - all.begin())]);
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

}  // namespace trireme::train::inline internal

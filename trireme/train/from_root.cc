#include "trireme/train/from_root.h"

#include <exception>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

// The first character of the text that goes to all.
constexpr char kDone = '+';
constexpr char kConfigError = 'c';
constexpr char kCheckpointError = 'k';
constexpr char kOtherError = '-';

std::string run(const std::function<std::string()>& produce) {
  try {
    return kDone + produce();
  } catch (const CommError&) {
    throw;  // the group is dead: nothing can be said to the peers
  } catch (const ConfigError& error) {
    return kConfigError + std::string(error.what());
  } catch (const CheckpointError& error) {
    return kCheckpointError + std::string(error.what());
  } catch (const std::exception& error) {
    return kOtherError + std::string(error.what());
  }
}

}  // namespace

std::string from_root(comm::Communicator& world, const std::function<std::string()>& produce) {
  const std::string result =
      comm::broadcast_string(world, world.rank() == 0 ? run(produce) : std::string(), 0);
  const std::string text = result.substr(1);
  switch (result.front()) {
    case kDone: return text;
    case kConfigError: throw ConfigError(text);
    case kCheckpointError: throw CheckpointError(text);
    default: throw Error(text);
  }
}

}  // namespace trireme::train

#include "trireme/comm/known_losses.h"

#include "trireme/base/error.h"

namespace trireme::comm {

void check_peers(Communicator& group, const std::string& doing) {
  const auto* const knows = dynamic_cast<const KnowsLosses*>(&group);
  const std::string loss = knows == nullptr ? "" : knows->known_loss();
  if (loss.empty()) return;
  const std::string text = concat("while waiting for ", doing, ": ", loss);
  group.abort(text);
  throw CommError(text);
}

}  // namespace trireme::comm

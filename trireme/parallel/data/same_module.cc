#include "trireme/parallel/data/same_module.h"

#include <span>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/data/sharded_weights.h"

namespace trireme::parallel {

void check_same_module(const torch::nn::Module& module, comm::Communicator& group,
                       const Selects& selects) {
  const auto is_left_out = [&](const std::string& name) { return selects && !selects(name); };
  std::string description;
  for (const auto& item : module.named_parameters()) {
    if (is_left_out(item.key())) continue;
    description += concat(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(),
                          item.value().requires_grad() ? " trained; " : " frozen; ");
  }
  for (const auto& item : module.named_buffers()) {
    if (is_left_out(item.key())) continue;
    description +=
        concat(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(), "; ");
  }
  // Every rank sees all digests, so that all ranks throw together.
  // Digests and not the descriptions, which grow with the model.
  const std::vector<std::string> digests =
      comm::all_gather_strings(group, checksum(std::as_bytes(std::span(description))));
  for (int rank = 1; rank < group.size(); ++rank) {
    TRIREME_CHECK(
        digests[rank] == digests[0], "rank ", rank, " of group ", group.name(),
        " has a different module from rank 0; expected the same names, shapes, dtypes and trained "
        "parameters on every rank");
  }
}

void broadcast_module(torch::nn::Module& module, comm::Communicator& group,
                      const Selects& selects) {
  const c10::NoGradGuard no_grad;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : list) {
      if (selects && !selects(item.key())) continue;
      if (has_memory(item.value())) group.broadcast(item.value().detach(), 0)->wait();
    }
  }
}

}  // namespace trireme::parallel

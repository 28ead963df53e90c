#include "trireme/parallel/server/host_sums.h"

#include "trireme/base/error.h"

namespace trireme::parallel {

HostSums::HostSums(comm::Communicator& host, ServerClient* client) : host_(host), client_(client) {
  TRIREME_ASSERT((client != nullptr) == (host.rank() == 0), "the host's first rank has the client");
}

void HostSums::pull(int64_t step, const std::vector<at::Tensor>& destinations) {
  if (client_ != nullptr) client_->pull(step, destinations);
  // One after the other: a parameter goes to the host's ranks while the next one is still on its
  // way.
  for (size_t i = 0; i < destinations.size(); ++i) {
    if (client_ != nullptr) client_->wait_pulled(static_cast<int64_t>(i));
    host_.broadcast(destinations[i], 0)->wait();
  }
}

void HostSums::push(int64_t step, const std::vector<at::Tensor>& gradients, double learning_rate) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    host_.reduce(gradients[i], 0)->wait();
    if (client_ != nullptr)
      client_->push(step, static_cast<int64_t>(i), gradients[i], learning_rate);
  }
  if (client_ != nullptr) client_->wait_pushed();
}

}  // namespace trireme::parallel

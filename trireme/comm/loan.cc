#include "trireme/comm/loan.h"

#include <ATen/ATen.h>

namespace trireme::comm {

// Without shared memory: a copy.
LoanPtr Communicator::borrow(at::IntArrayRef sizes, at::TensorOptions dtype, int peer,
                             Options options) {
  const auto data = std::make_shared<const at::Tensor>(at::empty(sizes, dtype));
  return std::make_shared<ReceivedLoan>(recv(*data, peer, options), data);
}

}  // namespace trireme::comm

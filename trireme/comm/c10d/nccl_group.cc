#include "trireme/comm/c10d/nccl_group.h"

#include "trireme/base/error.h"
#include "trireme/comm/c10d/native_communicator.h"

#ifdef TRIREME_HAVE_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace trireme::comm {

#ifdef TRIREME_HAVE_NCCL

bool has_nccl() { return true; }

std::unique_ptr<Communicator> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const NcclOptions& options) {
  const auto make_backend =
      [](const c10::intrusive_ptr<c10d::Store>& group_store, int group_rank, int group_size,
         std::chrono::milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = timeout;
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(group_store, group_rank, group_size, nccl);
  };
  const auto reduces = [](c10::ScalarType dtype, ReduceOp operation) {
    // ReduceOp begins with those that NCCL has: sum, product, minimum, maximum, average.
    // It has no integers of 16 bits, and no complex numbers.
    return operation <= ReduceOp::kAverage && dtype != c10::ScalarType::Short &&
           !c10::isComplexType(dtype);
  };
  return make_native_group(make_backend, store, rank, size,
                           {.name = options.name,
                            .transport = "nccl",
                            .timeout = options.timeout,
                            .device = c10::DeviceType::CUDA,
                            .reduces = reduces,
                            .recorder = options.recorder,
                            .cancellation = options.cancellation});
}

#else

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_group(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                              const NcclOptions&) {
  throw ConfigError(
      "this build has no NCCL; build with TRIREME_WITH_NCCL=ON and a libtorch that has CUDA");
}

#endif

}  // namespace trireme::comm

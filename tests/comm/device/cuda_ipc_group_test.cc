#include "trireme/comm/device/cuda_ipc_group.h"

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::comm {
namespace {

TEST(CudaIpcGroup, IsInABuildWithCuda) {
  EXPECT_EQ(has_cuda_ipc(), TRIREME_CUDA_IS_ON != 0);
#if !TRIREME_CUDA_IS_ON
  EXPECT_ERROR(ConfigError, make_cuda_ipc_group(std::move(make_thread_group(1).front()), "gpus"),
               "this build's libtorch has no CUDA");
#endif
}

}  // namespace
}  // namespace trireme::comm

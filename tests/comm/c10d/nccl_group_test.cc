#include "trireme/comm/c10d/nccl_group.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(NcclGroup, IsInTheBuildWhenTheConfigureSummarySaysSo) {
  EXPECT_EQ(has_nccl(), TRIREME_NCCL_IS_ON != 0);
#if !TRIREME_NCCL_IS_ON
  EXPECT_ERROR(ConfigError, make_nccl_group(c10::make_intrusive<c10d::HashStore>(), 0, 1),
               "this build has no NCCL; build with TRIREME_WITH_NCCL=ON");
#endif
}

}  // namespace
}  // namespace trireme::comm

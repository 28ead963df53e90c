#include "trireme/comm/c10d/gloo_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/c10d/gloo_ranks.h"
#include "tests/comm/errors.h"
#include "trireme/base/error.h"
#include "trireme/comm/message/message_communicator.h"

namespace trireme::comm {
namespace {

TEST(GlooGroup, TheInterfaceIsVisible) {
  run_gloo_ranks(2, [](Communicator& group) {
    const auto& messages = dynamic_cast<const MessageCommunicator&>(group);
    EXPECT_EQ(messages.channel().transport(), "gloo over lo (127.0.0.1)");
  });
}

TEST(GlooGroup, AnAddressThatIsNotThisHostsIsAConfigError) {
  GlooOptions options;
  options.interface = {"oar0", "192.0.2.1", false};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_ERROR(ConfigError, make_gloo_group(store, 0, 1, options),
               "Gloo cannot use interface oar0 (192.0.2.1)");
}

TEST(GlooGroup, RanksThatNeverComeAreACommErrorAtTheTimeout) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(300));
  EXPECT_ERROR(CommError,
               make_gloo_group(store, 0, 2, loopback_options(std::chrono::milliseconds(300))),
               "joining group world as rank 0 of 2: ");
}

}  // namespace
}  // namespace trireme::comm

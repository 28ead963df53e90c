#include "trireme/spmd/dispatch.h"

#include <gtest/gtest.h>

#include "tests/spmd/placed_cases.h"
#include "trireme/base/error.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;

void no_kernel(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {}

TEST(Dispatch, ALibtorchThatUsesTheKeyIsRefused) {
  constexpr c10::DispatchKey kOther = c10::DispatchKey::PrivateUse2;
  check_key_is_free(kOther);
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto error = [&] { return error_of([&] { check_key_is_free(kOther); }); };
  {
    const auto kernel = dispatcher.registerImpl(
        {"aten::add", "Tensor"}, kOther, c10::KernelFunction::makeFromBoxedFunction<&no_kernel>(),
        std::nullopt, nullptr, "test");
    EXPECT_NE(error().find("uses the dispatch key PrivateUse2 itself (aten::add.Tensor)"),
              std::string::npos)
        << error();
  }
  {
    const auto fallback = dispatcher.registerFallback(
        kOther, c10::KernelFunction::makeFromBoxedFunction<&no_kernel>(), "test");
    EXPECT_NE(error().find("itself (a fallback)"), std::string::npos) << error();
  }
  EXPECT_EQ(error(), "");
}

}  // namespace
}  // namespace trireme::spmd

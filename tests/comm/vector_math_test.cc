// What oneMKL chooses in first calls is chosen before ranks share the process.
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "trireme/comm/shared/thread_group.h"

namespace trireme::comm {
namespace {

std::set<std::string> called;

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  called.insert(function.name());
  return nullptr;
}

// For a process of its own, as it happens once.
void expect_settled_by_the_first_group() {
  at::addGlobalCallback(at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  run_thread_group(1, [](Communicator&) {});
  const std::set<std::string> first = called;
  for (const char* name : {"aten::exp", "aten::log", "aten::cos", "aten::sin", "aten::sqrt",
                           "aten::tanh", "aten::erf"}) {
    if (!first.contains(name)) std::exit(1);
  }
  called.clear();
  run_thread_group(1, [](Communicator&) {});
  std::exit(called.contains("aten::exp") ? 2 : 0);
}

TEST(VectorMath, IsSettledByTheFirstGroupOfAProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(expect_settled_by_the_first_group(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trireme::comm

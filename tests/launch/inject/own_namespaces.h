// A child process with a network and mounts of its own. Needs root.
#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::launch {

// Runs `check` there. A failed expectation in it fails the test.
inline void in_own_namespaces(const std::function<void()>& check) {
  const auto statuses = harness::fork_processes(1, [&](int) {
    const bool done = unshare(CLONE_NEWNS | CLONE_NEWNET) == 0 &&
                      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (!done) throw Error("cannot make namespaces");
    check();
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

}  // namespace trireme::launch

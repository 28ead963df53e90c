#include "trireme/train/run/out_of_memory.h"

#include <functional>
#include <new>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

void fail(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    rethrow_with_memory_advice();
  }
}

std::string advice_for(const std::function<void()>& work) {
  try {
    fail(work);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(OutOfMemory, AnAllocationThatFailsSaysWhatToDo) {
  // No machine has 2^60 bytes.
  const std::string error = advice_for([] { at::empty({int64_t{1} << 60}, at::kByte); });
  EXPECT_NE(error.find("allocate 1152921504606846976 bytes at once; "), std::string::npos) << error;
  EXPECT_NE(error.find("--parallel.zero=3"), std::string::npos) << error;
  EXPECT_EQ(error.find("enforce"), std::string::npos) << error;
  EXPECT_NE(advice_for([] { throw std::bad_alloc(); }).find("out of memory;"), std::string::npos);
}

TEST(OutOfMemory, OtherErrorsStayWhatTheyAre) {
  EXPECT_THROW(fail([] { throw std::runtime_error("other"); }), std::runtime_error);
  EXPECT_THROW(fail([] { at::ones({2}).view({3}); }), c10::Error);
  EXPECT_EQ(advice_for([] { throw ConfigError("mine"); }), "mine");
}

}  // namespace
}  // namespace trireme::train

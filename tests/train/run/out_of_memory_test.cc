#include "trireme/train/run/memory_check.h"

#include <cmath>
#include <functional>
#include <new>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

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

TEST(OutOfMemory, AFullSharedMemorySaysTheTotalAndTheKey) {
  const std::vector<Override> sizes = {{"model.vocab_size", "1000"}};
  RunConfig config = parse_config("", "test", sizes);
  resolve(config, 2);
  const auto advice = [&](const char* message) {
    try {
      try {
        throw ConfigError(message);
      } catch (...) {
        rethrow_with_memory_advice(nullptr, shared_memory_advice(config));
      }
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  const std::string full = "/dev/shm is too small: this group needs 9 bytes more";
  const double gradients = 4.0 * static_cast<double>(config.task->model().traits().num_parameters);
  const std::string mebibytes = format("%.0f MiB", std::ceil(gradients / (1 << 20)));
  EXPECT_EQ(advice(full.c_str()),
            full + "; the gradients take about " + mebibytes +
                " of it on each of its ranks; give it more, or set train.symmetric_memory = false, "
                "which takes longer");
  config.train.symmetric_memory = false;
  EXPECT_EQ(advice(full.c_str()), full);
  config.train.symmetric_memory = true;
  EXPECT_EQ(advice("mine"), "mine");
}

TEST(OutOfMemory, OtherErrorsStayWhatTheyAre) {
  EXPECT_THROW(fail([] { throw std::runtime_error("other"); }), std::runtime_error);
  EXPECT_THROW(fail([] { at::ones({2}).view({3}); }), c10::Error);
  EXPECT_EQ(advice_for([] { throw ConfigError("mine"); }), "mine");
}

}  // namespace
}  // namespace trireme::train

// Runs of learners whose checkpoints tests compare, and go on from.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/train/text_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/state/saved_form.h"

namespace trireme::train {

class LearnerRun : public TextRun {
 protected:
  std::filesystem::path checkpoint_of(const std::string& run, int64_t step) const {
    return folder_ / run / "checkpoints" / checkpoint::folder_name(step, 1);
  }
  std::map<std::string, at::Tensor> saved(const std::string& run, int64_t step) const {
    const auto all = checkpoint::load_global(checkpoint_of(run, step));
    return {all.begin(), all.end()};
  }
  // Lets `there` go on from the checkpoint that `run` has written after `step`.
  void copy_checkpoint(const std::string& run, int64_t step, const std::string& there) const {
    const std::filesystem::path folder = folder_ / there / "checkpoints";
    std::filesystem::create_directories(folder);
    std::filesystem::copy(checkpoint_of(run, step), folder / checkpoint_of(run, step).filename(),
                          std::filesystem::copy_options::recursive);
  }
  // Compares the common weights of two runs after `step`. relative: 0: the same bits
  void expect_same_weights(const std::string& actual, const std::string& expected, int64_t step,
                           double relative) const {
    const auto a = saved(actual, step), b = saved(expected, step);
    size_t compared = 0;
    for (const auto& [name, tensor] : b) {
      if (name.starts_with("optimizer.") || name.starts_with(kLearnerPrefix)) continue;
      ASSERT_TRUE(a.contains(name)) << name;
      const double largest = tensor.abs().max().item<double>();
      const double differs = (a.at(name) - tensor).abs().max().item<double>();
      EXPECT_LE(differs, relative * largest) << actual << " " << name;
      ++compared;
    }
    EXPECT_GT(compared, 10U);
  }
};

}  // namespace trireme::train

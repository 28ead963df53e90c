// A small run on prepared text: what a trainer and what it reads are tested with.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "tests/train/language_config.h"
#include "tests/train/small_run.h"
#include "trireme/dataset/prepare.h"

namespace trireme::train {

class TextRun : public SmallRun {
 protected:
  // The text is without a short period, so that there is something to learn and something not to.
  TextRun() {
    std::ofstream text(folder_ / "text.txt");
    for (int64_t i = 0; i < 400; ++i) {
      text << "line " << i << " of the text says " << i * i % 97 << " and " << i * 31 % 11 << '\n';
    }
    text.close();
    dataset::prepare({.inputs = {(folder_ / "text.txt").string()},
                      .output = (folder_ / "data").string(),
                      .validation_fraction = 0.1});
  }

  // Of a run in folder_ / run.
  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "data").string()},
                                         {"output.folder", (folder_ / run).string()}});
    return parse_config(R"(
[model]
layers = 2
width = 16
heads = 2
kv_heads = 1
ffn_width = 24
sequence_length = 16
[train]
steps = 6
global_batch = 8
micro_batch = 2
[optimizer]
learning_rate = 1e-2
warmup_steps = 3
[checkpoint]
interval = 2
)",
                        "test.toml", overrides);
  }
};

}  // namespace trireme::train

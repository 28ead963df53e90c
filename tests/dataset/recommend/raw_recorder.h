// Collects what a reader of raw data announces, as text, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

class RawRecorder : public RawVisitor {
 public:
  void on_item(std::string_view key, const Categories& categories) override {
    items.push_back(concat(key, ":", text_of(categories)));
  }
  void on_sample(const RawSample& sample) override {
    dense.push_back(sample.dense);
    labels.push_back(sample.label);
    groups.push_back(sample.group);
    samples.push_back(concat(sample.class_name, sample.item, ":", text_of(sample.categories)));
  }
  void on_bytes(int64_t count) override { num_bytes += count; }

  // "a|b,c": a table with a and b, a table with c.
  static std::string text_of(const Categories& categories) {
    std::string text;
    for (size_t t = 0; t < categories.size(); ++t) {
      text += t == 0 ? "" : ",";
      for (size_t i = 0; i < categories[t].size(); ++i) {
        text += concat(i == 0 ? "" : "|", categories[t][i]);
      }
    }
    return text;
  }

  std::vector<std::string> items{}, samples{};
  std::vector<std::vector<float>> dense{};
  std::vector<double> labels{};
  std::vector<uint64_t> groups{};
  int64_t num_bytes = 0;
};

}  // namespace trireme::dataset

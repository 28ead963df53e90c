// Rows without labels for a trained model to answer, such as images or lines of text. They are read
// once, from the beginning, in the order of the inputs; no more than one is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/dataset/source.h"

namespace trireme::dataset {

struct Row {
  std::string path{};     // its file
  int64_t number = 0;     // in the file, from 1; 0: the file is one row
  NamedTensors sample{};  // all rows have the same names, dtypes and shapes
};

// Not thread safe.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Gives every row to `use`, in order.
  // Throws: ConfigError with the file and the row when one is wrong; what `use` throws
  virtual void read(const std::function<void(Row)>& use) = 0;

  // The progress of read(), in unit(); "": bytes.
  virtual int64_t num_done() const = 0;
  virtual int64_t num_total() const = 0;
  virtual std::string unit() const = 0;
  // What is left out, for people: "2 files that are not images". "": nothing.
  virtual std::string left_out() const = 0;
};

}  // namespace trireme::dataset

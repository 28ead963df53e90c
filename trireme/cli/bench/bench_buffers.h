// The tensors of one benchmark case on one rank, its call and the expected result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/cli/bench/bench_case.h"
#include "trireme/comm/communicator.h"

namespace trireme::cli::inline internal {

class CaseBuffers {
 public:
  // Gather-like operations split the elements into blocks; the first ranks take the remainder.
  // Throws: ConfigError when symmetric memory is too small
  CaseBuffers(comm::Communicator& group, const CommCase& what);

  // Runs the operation once.
  // Collective: every rank
  void run();
  // Fills in small whole numbers, exact in every dtype, that differ by rank and place.
  void fill_pattern();
  void fill_zero();
  // After fill_pattern() and one run: where the result is wrong, or "".
  std::string first_error() const;

 private:
  // Part of a result: element j must be table[(offset + j) % 4].
  struct Expected {
    at::Tensor actual;
    int64_t offset = 0;
    std::vector<int> table;
  };

  std::vector<Expected> expected() const;
  int64_t block(int rank) const;
  int64_t offset(int rank) const;
  std::vector<at::Tensor> blocks_of(const at::Tensor& flat) const;
  bool is_root() const { return group_->rank() == 0; }

  comm::Communicator* group_;
  CommCase what_;
  int64_t num_elements_ = 0;
  at::Tensor input_;
  at::Tensor output_;  // undefined if the operation is in place
  std::vector<at::Tensor> input_blocks_;
  std::vector<at::Tensor> output_blocks_;
};

}  // namespace trireme::cli::inline internal

// A case of `trireme bench comm`: one operation on one size of one dtype in one kind of memory; its
// tensors on one rank, its call and the expected result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"

namespace trireme::cli {

enum class CommOperation {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kBarrier,
};

// kOrdinary: at::empty. kSymmetric: Communicator::symmetric_empty.
enum class CommMemory { kOrdinary, kSymmetric };

struct CommCase {
  CommOperation operation = CommOperation::kAllReduce;
  CommMemory memory = CommMemory::kOrdinary;
  c10::ScalarType dtype = c10::kFloat;
  // The size in the sense of nccl-tests: a rank's buffer. If input and output differ it is the
  // larger one (all ranks' blocks together). 0 for barrier.
  int64_t bytes = 0;
};

std::string name_of(CommOperation operation);  // "all_reduce"
std::string name_of(CommMemory memory);        // "symmetric"
std::string name_of(c10::ScalarType dtype);    // "fp32"

// Each reads an option's value: several words, or words joined by commas. "all" names every
// operation. Sizes are bytes or 4, 64K, 1M, 1G, powers of 1024.
// Throws: ConfigError with the option, the word and what is expected
std::vector<CommOperation> parse_operations(const std::vector<std::string>& words);
std::vector<CommMemory> parse_memories(const std::vector<std::string>& words);
std::vector<c10::ScalarType> parse_dtypes(const std::vector<std::string>& words);
std::vector<int64_t> parse_sizes(const std::vector<std::string>& words);
std::vector<int> parse_rank_counts(const std::vector<std::string>& words);
// The words themselves: at least one, none empty.
std::vector<std::string> parse_names(std::string_view option,
                                     const std::vector<std::string>& words);

// Every combination, with operations outermost and sizes innermost. barrier, which has neither size
// nor memory nor dtype, appears once.
// Throws: ConfigError when a size is not a multiple of a dtype's item size
std::vector<CommCase> combine_cases(const std::vector<CommOperation>& operations,
                                    const std::vector<CommMemory>& memories,
                                    const std::vector<c10::ScalarType>& dtypes,
                                    const std::vector<int64_t>& sizes);

// Bus bandwidth over algorithm bandwidth: the share of the bytes that a rank must send or receive.
// With it, the best possible value does not depend on the number of ranks.
// Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md
double bus_factor(CommOperation operation, int num_ranks);

// The tensors of one case on one rank, its call and the expected result.
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

}  // namespace trireme::cli

// A case of `trireme bench comm`: one operation on one size of one dtype in one kind of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace trireme::cli::inline internal {

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

}  // namespace trireme::cli::inline internal

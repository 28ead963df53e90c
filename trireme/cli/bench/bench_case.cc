#include "trireme/cli/bench/bench_case.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::cli::inline internal {
namespace {

using enum CommOperation;

constexpr Choice<CommOperation> kOperations[] = {
    {"all_reduce", kAllReduce},
    {"reduce", kReduce},
    {"broadcast", kBroadcast},
    {"all_gather", kAllGather},
    {"reduce_scatter", kReduceScatter},
    {"all_to_all", kAllToAll},
    {"gather", kGather},
    {"scatter", kScatter},
    {"send_recv", kSendRecv},
    {"barrier", kBarrier},
};

constexpr Choice<CommMemory> kMemories[] = {
    {"ordinary", CommMemory::kOrdinary},
    {"symmetric", CommMemory::kSymmetric},
};

constexpr Choice<c10::ScalarType> kDtypes[] = {
    {"fp64", c10::kDouble}, {"fp32", c10::kFloat}, {"bf16", c10::kBFloat16},
    {"fp16", c10::kHalf},   {"int64", c10::kLong}, {"int32", c10::kInt},
    {"int16", c10::kShort}, {"int8", c10::kChar},  {"uint8", c10::kByte},
};

template <typename Value, size_t kSize>
std::vector<Value> parse_words(std::string_view option, const Choice<Value> (&table)[kSize],
                               const std::vector<std::string>& words) {
  std::vector<Value> values;
  for (const std::string& word : parse_names(option, words)) {
    const auto* const found = find_choice(table, word);
    TRIREME_CHECK(found != nullptr, option, " has \"", word, "\"; expected one of ",
                  joined(names_of(table)));
    values.push_back(found->value);
  }
  return values;
}

// "64K" -> 65536; -1 when it is not a size.
int64_t parse_size(const std::string& word) {
  int64_t value = 0;
  const char* const last = word.data() + word.size();
  const auto [end, error] = std::from_chars(word.data(), last, value);
  if (error != std::errc() || value < 1) return -1;
  int shift = 0;
  if (last - end == 1) {
    const std::string_view units = "KMG";
    const size_t unit = units.find(*end);
    if (unit == std::string_view::npos) return -1;
    shift = 10 * (static_cast<int>(unit) + 1);
  } else if (end != last) {
    return -1;
  }
  return value > std::numeric_limits<int64_t>::max() >> shift ? -1 : value << shift;
}

}  // namespace

std::string name_of(CommOperation operation) { return trireme::name_of(kOperations, operation); }
std::string name_of(CommMemory memory) { return trireme::name_of(kMemories, memory); }
std::string name_of(c10::ScalarType dtype) { return trireme::name_of(kDtypes, dtype); }

std::vector<std::string> parse_names(std::string_view option,
                                     const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      names.push_back(word.substr(begin, end - begin));
      TRIREME_CHECK(!names.back().empty(), option, " has an empty entry in \"", word,
                    "\"; expected words joined by commas");
      begin = end + 1;
    }
  }
  TRIREME_CHECK(!names.empty(), option, " is empty; expected at least one entry");
  return names;
}

std::vector<CommOperation> parse_operations(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"all"}) {
    std::vector<CommOperation> operations;
    for (const auto& [name, operation] : kOperations) operations.push_back(operation);
    return operations;
  }
  return parse_words("--operation", kOperations, words);
}

std::vector<CommMemory> parse_memories(const std::vector<std::string>& words) {
  return parse_words("--memory", kMemories, words);
}

std::vector<c10::ScalarType> parse_dtypes(const std::vector<std::string>& words) {
  return parse_words("--dtype", kDtypes, words);
}

std::vector<int64_t> parse_sizes(const std::vector<std::string>& words) {
  std::vector<int64_t> sizes;
  for (const std::string& word : parse_names("--sizes", words)) {
    sizes.push_back(parse_size(word));
    TRIREME_CHECK(sizes.back() > 0, "--sizes has \"", word,
                  "\"; expected bytes such as 4, 64K, 1M or 1G");
  }
  return sizes;
}

std::vector<int> parse_rank_counts(const std::vector<std::string>& words) {
  std::vector<int> counts;
  for (const std::string& word : parse_names("--ranks", words)) {
    int count = 0;
    const char* const last = word.data() + word.size();
    const auto [end, error] = std::from_chars(word.data(), last, count);
    TRIREME_CHECK(error == std::errc() && end == last && count >= 1, "--ranks has \"", word,
                  "\"; expected whole numbers from 1 on");
    counts.push_back(count);
  }
  return counts;
}

std::vector<CommCase> combine_cases(const std::vector<CommOperation>& operations,
                                    const std::vector<CommMemory>& memories,
                                    const std::vector<c10::ScalarType>& dtypes,
                                    const std::vector<int64_t>& sizes) {
  std::vector<CommCase> cases;
  for (const CommOperation operation : operations) {
    if (operation == kBarrier) {
      cases.push_back({kBarrier, memories.front(), dtypes.front(), 0});
      continue;
    }
    for (const CommMemory memory : memories) {
      for (const c10::ScalarType dtype : dtypes) {
        for (const int64_t bytes : sizes) {
          const auto item = static_cast<int64_t>(c10::elementSize(dtype));
          TRIREME_CHECK(bytes % item == 0, "--sizes has ", bytes, " bytes; expected a multiple of ",
                        item, ", the size of ", name_of(dtype));
          cases.push_back({operation, memory, dtype, bytes});
        }
      }
    }
  }
  return cases;
}

double bus_factor(CommOperation operation, int num_ranks) {
  const double others = num_ranks - 1.0;
  switch (operation) {
    case kAllReduce: return 2 * others / num_ranks;
    case kAllGather:
    case kReduceScatter:
    case kAllToAll:
    case kGather:
    case kScatter: return others / num_ranks;
    case kReduce:
    case kBroadcast:
    case kSendRecv: return 1;
    case kBarrier: return 0;
  }
  throw InternalError("unknown operation");
}

}  // namespace trireme::cli::inline internal

#include "trireme/cli/bench/bench_case.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::cli {
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

using enum CommOperation;

constexpr int kRoot = 0;
constexpr int64_t kPeriod = 4;  // of the patterns

// Rank r's element i is (i + r) % 4.
std::vector<int> values_of(int rank) {
  std::vector<int> table;
  for (int i = 0; i < kPeriod; ++i) table.push_back((i + rank) % kPeriod);
  return table;
}

std::vector<int> sums_of(int num_ranks) {
  std::vector<int> table(kPeriod);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int i = 0; i < kPeriod; ++i) table[i] += (i + rank) % kPeriod;
  }
  return table;
}

at::Tensor pattern(const std::vector<int>& table, int64_t offset, int64_t count,
                   c10::ScalarType dtype) {
  const at::Tensor period = at::tensor(table, at::kInt).to(dtype);
  return period.repeat({count / kPeriod + 2}).narrow(0, offset % kPeriod, count);
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
                  "\"; expected whole numbers of at least 1");
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

CaseBuffers::CaseBuffers(comm::Communicator& group, const CommCase& what)
    : group_(&group),
      what_(what),
      num_elements_(what.bytes / static_cast<int64_t>(c10::elementSize(what.dtype))) {
  const auto buffer = [&](int64_t count) {
    return what.memory == CommMemory::kSymmetric ? group.symmetric_empty({count}, what.dtype)
                                                 : at::empty({count}, what.dtype);
  };
  const int rank = group.rank();
  switch (what.operation) {
    case kAllReduce:
    case kReduce:
    case kBroadcast: input_ = buffer(num_elements_); break;
    case kAllGather:
    case kGather:
      input_ = buffer(block(rank));
      if (what.operation == kAllGather || is_root()) output_ = buffer(num_elements_);
      output_blocks_ = blocks_of(output_);
      break;
    case kReduceScatter:
    case kScatter:
      if (what.operation == kReduceScatter || is_root()) input_ = buffer(num_elements_);
      output_ = buffer(block(rank));
      input_blocks_ = blocks_of(input_);
      break;
    case kAllToAll:
      input_ = buffer(num_elements_);
      output_ = buffer(block(rank) * group.size());
      input_blocks_ = blocks_of(input_);
      // Every rank's block for this rank has the same length.
      output_blocks_ = output_.view({group.size(), block(rank)}).unbind(0);
      break;
    case kSendRecv:
      input_ = buffer(num_elements_);
      output_ = buffer(num_elements_);
      break;
    case kBarrier: break;
  }
}

int64_t CaseBuffers::block(int rank) const {
  return num_elements_ / group_->size() + (rank < num_elements_ % group_->size() ? 1 : 0);
}

int64_t CaseBuffers::offset(int rank) const {
  return num_elements_ / group_->size() * rank +
         std::min<int64_t>(rank, num_elements_ % group_->size());
}

std::vector<at::Tensor> CaseBuffers::blocks_of(const at::Tensor& flat) const {
  std::vector<at::Tensor> blocks;
  for (int rank = 0; flat.defined() && rank < group_->size(); ++rank) {
    blocks.push_back(flat.narrow(0, offset(rank), block(rank)));
  }
  return blocks;
}

void CaseBuffers::run() {
  comm::Communicator& group = *group_;
  switch (what_.operation) {
    case kAllReduce: return group.all_reduce(input_)->wait();
    case kReduce: return group.reduce(input_, kRoot)->wait();
    case kBroadcast: return group.broadcast(input_, kRoot)->wait();
    case kAllGather: return group.all_gather(output_blocks_, input_)->wait();
    case kReduceScatter: return group.reduce_scatter(output_, input_blocks_)->wait();
    case kAllToAll: return group.all_to_all(output_blocks_, input_blocks_)->wait();
    case kGather: return group.gather(output_blocks_, input_, kRoot)->wait();
    case kScatter: return group.scatter(output_, input_blocks_, kRoot)->wait();
    case kSendRecv: {
      const int size = group.size();
      const comm::WorkPtr sent =
          group.send(input_, (group.rank() + 1) % size, {.background = true});
      group.recv(output_, (group.rank() + size - 1) % size)->wait();
      return sent->wait();
    }
    case kBarrier: return group.barrier()->wait();
  }
}

void CaseBuffers::fill_pattern() {
  if (input_.defined()) {
    input_.copy_(pattern(values_of(group_->rank()), 0, input_.numel(), what_.dtype));
  }
  if (output_.defined()) output_.fill_(77);
}

void CaseBuffers::fill_zero() {
  if (input_.defined()) input_.zero_();
  if (output_.defined()) output_.zero_();
}

std::vector<CaseBuffers::Expected> CaseBuffers::expected() const {
  const int rank = group_->rank();
  const int size = group_->size();
  std::vector<Expected> parts;
  switch (what_.operation) {
    case kAllReduce: return {{input_, 0, sums_of(size)}};
    case kReduce:
      if (is_root()) parts.push_back({input_, 0, sums_of(size)});
      return parts;
    case kBroadcast: return {{input_, 0, values_of(kRoot)}};
    case kAllGather:
    case kGather:
      for (size_t from = 0; from < output_blocks_.size(); ++from) {
        parts.push_back({output_blocks_[from], 0, values_of(static_cast<int>(from))});
      }
      return parts;
    case kReduceScatter: return {{output_, offset(rank), sums_of(size)}};
    case kScatter: return {{output_, offset(rank), values_of(kRoot)}};
    case kAllToAll:
      for (int from = 0; from < size; ++from) {
        parts.push_back({output_blocks_[from], offset(rank), values_of(from)});
      }
      return parts;
    case kSendRecv: return {{output_, 0, values_of((rank + size - 1) % size)}};
    case kBarrier: return parts;
  }
  throw InternalError("unknown operation");
}

std::string CaseBuffers::first_error() const {
  for (const Expected& part : expected()) {
    const at::Tensor wanted = pattern(part.table, part.offset, part.actual.numel(), what_.dtype);
    if (at::equal(part.actual, wanted)) continue;
    const auto place = at::nonzero(part.actual.ne(wanted)).flatten()[0].item<int64_t>();
    return concat("rank ", group_->rank(), " got ", part.actual[place].item<double>(),
                  " at element ", part.actual.storage_offset() + place, ", expected ",
                  wanted[place].item<double>());
  }
  return "";
}

}  // namespace trireme::cli

// Interprets Python's pickles without running anything in them. A pickle is a program that builds
// objects; this interpreter knows the instructions that build plain data. It calls nothing: a call
// or an object of a class becomes an inert record of the callable's name and its arguments. A file
// may name only the callables that its reader lists.
// Source: Python's pickletools.py, protocols 2 to 5
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

enum class PickleKind : uint8_t {
  kNone,
  kBoolean,
  kInteger,
  kFloat,
  kText,
  kBytes,
  kBigInteger,  // does not fit 64 bits
  kTuple,
  kList,
  kDict,    // collections.OrderedDict too
  kGlobal,  // a callable's name
  kRecord,  // a call, or an object of a class
  kPersistent,
};

// "a list", for messages.
const char* name_of(PickleKind kind);

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  uint32_t offset = 0;      // of its instruction
  int64_t integer = 0;      // also of a boolean
  std::string_view text{};  // within the pickle, or a global's name
  // Indices of nodes. A dict's keys and values in turn; a record's global, its arguments and, if
  // it got one, its state.
  std::vector<uint32_t> items{};
};

struct PickleNodes {
  std::vector<PickleNode> nodes{};
  uint32_t root = 0;
};

inline constexpr size_t kMaxPickleBytes = size_t{512} << 20;
inline constexpr size_t kMaxPickleValues = size_t{32} << 20;
inline constexpr size_t kMaxPickleStack = size_t{1} << 20;

// globals: the names that may occur, such as "torch.Size". The result refers to them and to
// `bytes`. Nodes may contain each other in circles, as in Python. Messages begin with `source`.
// Memory: some 100 bytes for each value; each value has at least one byte
// Throws: CheckpointError, one line, for any other global, instruction or protocol, for a pickle
//         that is damaged, and beyond the limits above
PickleNodes unpickle(std::string_view bytes, std::span<const std::string_view> globals,
                     const std::string& source);

}  // namespace trireme::checkpoint

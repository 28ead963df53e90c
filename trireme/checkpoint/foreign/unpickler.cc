#include "trireme/checkpoint/foreign/unpickler.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::checkpoint {

// A pickle is a program for a stack machine, and Python's own interpreter runs whatever it calls.
// This one only builds nodes. Calls and objects become records of a name and arguments, and a name
// must be in the reader's list. Work and memory are bounded by the file: every instruction takes at
// least a byte and pushes at most one node, and no instruction copies a node, only its index. So a
// value may be shared, and a file of a few bytes can describe a tree of any size; whoever follows
// the nodes has to count (pickle.h). Indices and not pointers, because the vector of nodes moves
// when it grows. Instructions that build no plain data are refused by number, rather than skipped:
// their effect on the stack would be guessed.

namespace {

static_assert(std::endian::native == std::endian::little, "pickles are little-endian");

constexpr std::string_view kOrderedDict = "collections.OrderedDict";

// Runs once, and ends: each instruction takes at least a byte, and its work is at most the values
// that it takes from the stack.
class Interpreter {
 public:
  Interpreter(std::string_view bytes, std::span<const std::string_view> globals,
              const std::string& source)
      : bytes_(bytes), rest_(bytes), globals_(globals), source_(source) {}

  PickleNodes run() {
    if (rest_.size() > kMaxPickleBytes)
      fail(rest_.size(), " bytes; expected at most ", kMaxPickleBytes);
    constexpr uint8_t kProtocol = 0x80;
    // Older protocols have no mark of their own.
    if (number<uint8_t>() != kProtocol) fail("not a pickle of protocol 2 to 5");
    const auto protocol = number<uint8_t>();
    if (protocol < 2 || protocol > 5) fail("protocol ", int{protocol}, "; expected 2 to 5");
    for (;;) {
      // Kept for messages, which name the byte.
      at_ = bytes_.size() - rest_.size();
      const auto opcode = number<uint8_t>();
      if (opcode == '.') break;
      if (!scalar(opcode) && !text(opcode) && !container(opcode) && !memo(opcode) && !call(opcode))
        refuse(opcode);
    }
    result_.root = pop();
    // What is left over was meant for something that this interpreter did not understand.
    if (!stack_.empty() || !marks_.empty()) fail("values are left over at the end");
    if (!rest_.empty()) fail(rest_.size(), " bytes behind the end");
    return std::move(result_);
  }

 private:
  using Kind = PickleKind;

  template <typename... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw CheckpointError(concat(source_, ": byte ", at_, ": ", args...));
  }
  [[noreturn]] void refuse(uint8_t opcode) const {
    char code[8];
    std::snprintf(code, sizeof(code), "0x%02x", opcode);
    fail(
        "the instruction ", code,
        " is not one of those that build plain data, so it is not run: load the file in Python and "
        "save only its tensors, as a dict of names");
  }

  std::string_view take(uint64_t num_bytes) {
    // Before the view is made. Every count in the file passes here.
    if (num_bytes > rest_.size())
      fail("wants ", num_bytes, " bytes of ", rest_.size(), ": truncated or damaged");
    const std::string_view taken = rest_.substr(0, num_bytes);
    rest_.remove_prefix(num_bytes);
    return taken;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const std::string_view text = take(std::min(rest_.find('\n'), rest_.size()));
    take(1);
    return text;
  }

  bool push(PickleNode node) {
    if (result_.nodes.size() == kMaxPickleValues)
      fail("more than ", kMaxPickleValues, " values; expected at most as many");
    // Fits: a pickle has at most kMaxPickleBytes.
    node.offset = static_cast<uint32_t>(at_);
    result_.nodes.push_back(std::move(node));
    return push_index(static_cast<uint32_t>(result_.nodes.size() - 1));
  }
  bool push_index(uint32_t index) {
    if (stack_.size() == kMaxPickleStack)
      fail("more than ", kMaxPickleStack, " values on the stack; expected at most as many");
    stack_.push_back(index);
    return true;
  }
  // Values below the last mark belong to what is under way there.
  uint32_t top() const {
    // A mark divides the stack. What lies below it belongs to an outer container.
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("needs a value: damaged");
    return stack_.back();
  }
  uint32_t pop() {
    const uint32_t index = top();
    stack_.pop_back();
    return index;
  }
  uint32_t pop(Kind kind) {
    const uint32_t index = pop();
    if (node(index).kind != kind)
      fail("needs ", name_of(kind), ", found ", name_of(node(index).kind), ": damaged");
    return index;
  }
  std::vector<uint32_t> pop_many(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) fail("needs a mark: damaged");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  PickleNode& node(uint32_t index) { return result_.nodes[index]; }
  PickleNode& top_node(Kind kind) {
    PickleNode& target = node(top());
    if (target.kind != kind)
      fail("needs ", name_of(kind), ", found ", name_of(target.kind), ": damaged");
    return target;
  }

  bool push_integer(int64_t value) { return push({.kind = Kind::kInteger, .integer = value}); }
  bool push_long(uint64_t num_bytes) {
    const std::string_view bytes = take(num_bytes);
    // Kept as bytes: nobody asks for such a number, and having one is not an error.
    if (bytes.size() > sizeof(int64_t)) return push({.kind = Kind::kBigInteger, .text = bytes});
    // Begins with the sign's bits, because the number may have fewer bytes.
    // Two's complement: the last byte's sign fills the rest.
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return push_integer(static_cast<int64_t>(value));
  }

  bool scalar(uint8_t opcode) {
    switch (opcode) {
      case 'N': return push({.kind = Kind::kNone});
      case 0x88: return push({.kind = Kind::kBoolean, .integer = 1});
      case 0x89: return push({.kind = Kind::kBoolean, .integer = 0});
      case 'J': return push_integer(number<int32_t>());
      case 'K': return push_integer(number<uint8_t>());
      case 'M': return push_integer(number<uint16_t>());
      case 0x8a: return push_long(number<uint8_t>());
      case 0x8b: return push_long(number<uint32_t>());
      case 'G': return push({.kind = Kind::kFloat, .text = take(sizeof(double))});
      default: return false;
    }
  }

  bool text(uint8_t opcode) {
    switch (opcode) {
      case 0x8c: return push({.kind = Kind::kText, .text = take(number<uint8_t>())});
      case 'X': return push({.kind = Kind::kText, .text = take(number<uint32_t>())});
      case 0x8d: return push({.kind = Kind::kText, .text = take(number<uint64_t>())});
      case 'C': return push({.kind = Kind::kBytes, .text = take(number<uint8_t>())});
      case 'B': return push({.kind = Kind::kBytes, .text = take(number<uint32_t>())});
      case 0x8e: return push({.kind = Kind::kBytes, .text = take(number<uint64_t>())});
      case 0x95:  // a frame: the size of a part, which says nothing about the values
        // A frame is a hint for reading in blocks. It is checked because one beyond the end is a
        // sign of damage.
        if (number<uint64_t>() > rest_.size()) fail("a frame beyond the end: truncated or damaged");
        return true;
      default: return false;
    }
  }

  bool push_tuple(std::vector<uint32_t> items) {
    return push({.kind = Kind::kTuple, .items = std::move(items)});
  }
  bool extend(Kind kind, const std::vector<uint32_t>& items) {
    PickleNode& target = top_node(kind);
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a key without a value: damaged");
    target.items.insert(target.items.end(), items.begin(), items.end());
    return true;
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case '(': return marks_.push_back(stack_.size()), check_marks();
      case ')': return push_tuple({});
      case 0x85: return push_tuple(pop_many(1));
      case 0x86: return push_tuple(pop_many(2));
      case 0x87: return push_tuple(pop_many(3));
      case 't': return push_tuple(pop_to_mark());
      case ']': return push({.kind = Kind::kList});
      case 'a': return extend(Kind::kList, pop_many(1));
      case 'e': return extend(Kind::kList, pop_to_mark());
      case '}': return push({.kind = Kind::kDict});
      case 's': return extend(Kind::kDict, pop_many(2));
      case 'u': return extend(Kind::kDict, pop_to_mark());
      default: return false;
    }
  }
  bool check_marks() const {
    if (marks_.size() > kMaxPickleStack)
      fail("more than ", kMaxPickleStack, " marks; expected at most as many");
    return true;
  }

  // Python counts the entries from 0, so a number beyond the next one is damage. An array that grew
  // up to it would be an attack.
  bool put(uint32_t entry) {
    if (entry > memo_.size()) fail("memo entry ", entry, " of ", memo_.size(), ": damaged");
    if (entry == memo_.size()) {
      // An entry of the memo refers to a node, so there are never more of them.
      if (memo_.size() == result_.nodes.size()) fail("more memo entries than values: damaged");
      memo_.push_back(top());
    } else {
      memo_[entry] = top();
    }
    return true;
  }
  bool get(uint32_t entry) {
    if (entry >= memo_.size()) fail("memo entry ", entry, " of ", memo_.size(), ": damaged");
    return push_index(memo_[entry]);
  }

  bool memo(uint8_t opcode) {
    switch (opcode) {
      case 'q': return put(number<uint8_t>());
      case 'r': return put(number<uint32_t>());
      case 0x94: return put(static_cast<uint32_t>(memo_.size()));
      // 'g', 'p' and the other textual forms are of protocols 0 and 1.
      case 'h': return get(number<uint8_t>());
      case 'j': return get(number<uint32_t>());
      default: return false;
    }
  }

  bool push_global(std::string_view module, std::string_view name) {
    const auto is_it = [&](std::string_view known) {
      return known.size() == module.size() + 1 + name.size() && known.starts_with(module) &&
             known[module.size()] == '.' && known.ends_with(name);
    };
    const auto found = std::ranges::find_if(globals_, is_it);
    if (found == globals_.end())
      fail(
          "refers to ", shown(module), ".", shown(name),
          ", which is not one of the names that a file of tensors needs, so it is not loaded: load "
          "the file in Python and save only its tensors, as a dict of names");
    return push({.kind = Kind::kGlobal, .text = *found});
  }
  bool push_record() {
    // Both are checked to be what they are used as. A record of anything else could be followed
    // wrongly.
    const uint32_t arguments = pop(Kind::kTuple);
    const uint32_t callable = pop(Kind::kGlobal);
    // The one callable that is interpreted, since state dicts are these. A dict has the same
    // members.
    if (node(callable).text == kOrderedDict) {
      if (!node(arguments).items.empty()) fail("an OrderedDict with arguments; expected none");
      return push({.kind = Kind::kDict});
    }
    return push({.kind = Kind::kRecord, .items = {callable, arguments}});
  }
  // The attributes of an OrderedDict, such as the versions in a module's state dict, are left out.
  bool build() {
    const uint32_t state = pop();
    PickleNode& target = node(top());
    if (target.kind == Kind::kDict) return true;
    if (target.kind != Kind::kRecord || target.items.size() != 2)
      fail("gives a state to ", name_of(target.kind), "; expected a new object: damaged");
    target.items.push_back(state);
    return true;
  }

  bool call(uint8_t opcode) {
    switch (opcode) {
      case 'c': {
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {
        const uint32_t name = pop(Kind::kText);
        return push_global(node(pop(Kind::kText)).text, node(name).text);
      }
      case 'R':
      case 0x81: return push_record();
      case 'b': return build();
      case 'Q': return push({.kind = Kind::kPersistent, .items = {pop()}});
      default: return false;
    }
  }

  std::string_view bytes_;
  std::string_view rest_;
  std::span<const std::string_view> globals_;
  const std::string& source_;
  PickleNodes result_;
  size_t at_ = 0;  // the instruction under way
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::vector<uint32_t> memo_;
};

}  // namespace

const char* name_of(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone: return "None";
    case PickleKind::kBoolean: return "a boolean";
    case PickleKind::kInteger: return "an integer";
    case PickleKind::kFloat: return "a float";
    case PickleKind::kText: return "a string";
    case PickleKind::kBytes: return "bytes";
    case PickleKind::kBigInteger: return "an integer beyond 64 bits";
    case PickleKind::kTuple: return "a tuple";
    case PickleKind::kList: return "a list";
    case PickleKind::kDict: return "a dict";
    case PickleKind::kGlobal: return "a global";
    case PickleKind::kRecord: return "an object";
    case PickleKind::kPersistent: return "a persistent reference";
  }
  return "an unknown value";
}

PickleNodes unpickle(std::string_view bytes, std::span<const std::string_view> globals,
                     const std::string& source) {
  return Interpreter(bytes, globals, source).run();
}

}  // namespace trireme::checkpoint

// Writes Python's pickles, protocol 2. Each call appends what it names to a stack that Python's
// unpickler keeps: append and build take what they need from there.
// Source: Python's pickletools.py
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::checkpoint::inline internal {

class Pickler {
 public:
  Pickler() = default;

  Pickler& none() { return code('N'); }
  Pickler& boolean(bool value) { return code(value ? '\x88' : '\x89'); }
  Pickler& integer(int64_t value);
  Pickler& text(std::string_view value);
  // A tuple of integers.
  Pickler& integers(std::span<const int64_t> values);
  // module: "torch"; name: "float32". Neither has a line's end.
  Pickler& global(std::string_view module, std::string_view name);

  // What follows up to tuple() or set_items() is taken together.
  Pickler& mark() { return code('('); }
  Pickler& tuple() { return code('t'); }
  Pickler& empty_tuple() { return code(')'); }
  Pickler& empty_list() { return code(']'); }
  Pickler& append() { return code('a'); }
  Pickler& empty_dict() { return code('}'); }
  Pickler& set_items() { return code('u'); }  // keys and values in turn

  Pickler& call() { return code('R'); }           // of a global and a tuple
  Pickler& new_object() { return code('\x81'); }  // of a global and a tuple
  Pickler& set_state() { return code('b'); }      // of an object and its state
  Pickler& persistent() { return code('Q'); }

  // The whole pickle. Call once.
  std::string finish() { return std::move(code('.').bytes_); }

 private:
  Pickler& code(char opcode) {
    bytes_.push_back(opcode);
    return *this;
  }
  template <typename T>
  Pickler& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }

  std::string bytes_{"\x80\x02"};
};

}  // namespace trireme::checkpoint::inline internal

// The variables of a rendering, block by block. A block sees those of the blocks around it where it
// is written, and what it sets is its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/dataset/chat/syntax/syntax.h"
#include "trireme/dataset/chat/values/value.h"

namespace trireme::dataset::chat {

class Scopes {
 public:
  // Begins with one block, that of the template.
  Scopes(Run& run, size_t num_names);

  // The innermost block, as a place for macros and loops that are defined there.
  size_t current() const { return frames_.size() - 1; }
  uint64_t serial_of(size_t frame) const { return frames_[frame].serial; }
  bool is_alive(size_t frame, uint64_t serial) const {
    return frame < frames_.size() && frames_[frame].serial == serial;
  }

  // Null when there is no such variable.
  const Value* find(NameId name);
  void set(NameId name, Value value);

  // A block within the block `parent`, while this exists.
  class Frame {
   public:
    Frame(Scopes& scopes, size_t parent) : scopes_(scopes) { scopes_.push(parent); }
    explicit Frame(Scopes& scopes) : Frame(scopes, scopes.current()) {}
    ~Frame() { scopes_.frames_.pop_back(); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    // Forgets its variables, for the next turn of a loop.
    void clear() { scopes_.renew(); }

   private:
    Scopes& scopes_;
  };

 private:
  using Variable = std::pair<NameId, Value>;
  struct Block {
    size_t parent;
    uint64_t serial;
    std::vector<Variable> variables{};
  };

  void push(size_t parent) { frames_.push_back({.parent = parent, .serial = ++last_serial_}); }
  void renew();

  Run& run_;
  std::vector<Block> frames_;
  std::vector<Value> globals_;  // the template's block, by name
  std::vector<bool> is_set_;
  uint64_t last_serial_ = 0;
};

}  // namespace trireme::dataset::chat

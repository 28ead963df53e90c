// What one reading or rendering of a chat template may cost, and where it stands: every function
// that works for a template takes a Run, charges it for its work, and fails through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme::dataset {

// A template is text from outside. These bound its time, its memory and the stack.
struct ChatTemplateLimits {
  size_t max_template_bytes = size_t{1} << 20;
  size_t max_syntax_depth = 150;  // of nested expressions, blocks and chains of operators
  // Of expressions and macros that are evaluated inside of each other.
  size_t max_depth = 500;
  // A step is one expression, one element of a list, or kBytesPerStep bytes of a text.
  uint64_t max_steps = 10'000'000;
  size_t max_text_bytes = size_t{64} << 20;  // of one value
  size_t max_output_bytes = size_t{64} << 20;
};

namespace chat {

inline constexpr size_t kMaxValueDepth = 100;  // of lists and dicts in each other
inline constexpr size_t kBytesPerStep = 64;
inline constexpr size_t kCharactersPerStep = 4;

class Run {
 public:
  // `source` begins every message. Both must outlive this.
  Run(const std::string& source, const ChatTemplateLimits& limits)
      : source_(source), limits_(limits) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const ChatTemplateLimits& limits() const { return limits_; }

  // The line of the template that is read or evaluated.
  size_t line() const { return line_; }
  void set_line(size_t line) { line_ = line; }

  // Throws ConfigError: "SOURCE: line LINE of the chat template: ...".
  template <typename... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw ConfigError(concat(source_, ": line ", line_, " of the chat template: ", args...));
  }

  // Throws: ConfigError when the steps are used up
  void charge(uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) [[unlikely]] {
      fail("rendering takes more than ", limits_.max_steps,
           " steps; simplify its loops, or render fewer messages at a time");
    }
  }
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep); }
  // For work on each character, such as its case.
  void charge_characters(size_t bytes) { charge(bytes / kCharactersPerStep); }

  // Charges for a text that is about to be made.
  // Throws: ConfigError when it is too large
  void charge_text(size_t bytes) {
    if (bytes > limits_.max_text_bytes) [[unlikely]] {
      fail("makes a text of more than ", limits_.max_text_bytes, " bytes; make shorter ones");
    }
    charge_bytes(bytes);
  }

  // One level of evaluation, while it exists.
  class Deeper {
   public:
    explicit Deeper(Run& run) : run_(run) {
      if (run.depth_ >= run.limits_.max_depth) [[unlikely]] {
        run.fail("evaluates expressions and macros more than ", run.limits_.max_depth,
                 " deep; call macros inside of each other less deep");
      }
      ++run.depth_;
    }
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Run& run_;
  };

 private:
  const std::string& source_;
  const ChatTemplateLimits& limits_;
  size_t line_ = 1;
  uint64_t steps_ = 0;
  size_t depth_ = 0;
};

}  // namespace chat
}  // namespace trireme::dataset

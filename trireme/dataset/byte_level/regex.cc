#include "trireme/dataset/byte_level/regex.h"

#include <algorithm>
#include <array>
#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/dataset/byte_level/pattern.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kMaxPatternBytes = size_t{16} << 10;
constexpr size_t kMaxStackBytes = size_t{8} << 20;  // grows from 32 KiB on
constexpr uint32_t kMaxHeapKib = uint32_t{64} << 10;
// A greedy run that is given back character by character takes a step for each.
constexpr uint64_t kMaxSteps = 1'000'000;
constexpr uint64_t kMaxStepsPerByte = 16;

std::string reason_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <typename T>
T* allocated(T* pointer) {
  TRIREME_CHECK(pointer != nullptr, "out of memory for a regular expression");
  return pointer;
}

}  // namespace

void FreePcre2::operator()(pcre2_code* code) const { pcre2_code_free(code); }
void FreePcre2::operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
void FreePcre2::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}
void FreePcre2::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }

MatchMemory::MatchMemory()
    : context_(allocated(pcre2_match_context_create(nullptr))),
      stack_(allocated(pcre2_jit_stack_create(size_t{32} << 10, kMaxStackBytes, nullptr))),
      data_(allocated(pcre2_match_data_create(1, nullptr))) {
  pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Regex::Regex(std::string_view pattern, const std::string& source)
    : pattern_(pattern), source_(source) {
  TRIREME_CHECK(pattern.size() <= kMaxPatternBytes, source, ": a pattern has ", pattern.size(),
                " bytes; expected at most ", kMaxPatternBytes);
  const std::string translated = as_pcre2(pattern, source);
  struct Free {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, Free> context(
      allocated(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(units(translated), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &error, &offset, context.get()));
  TRIREME_CHECK(code_ != nullptr, source, ": the pattern \"", shown(pattern, 200),
                "\" is not a regular expression: ", reason_of(error));
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  TRIREME_CHECK(matches_nothing == 0, source, ": the pattern \"", shown(pattern, 200),
                "\" matches the empty text; expected one that takes a character at least");
  // Where the processor has no compiler in PCRE2, matches are interpreted.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::optional<TextRange> Regex::find(std::string_view text, size_t begin,
                                     MatchMemory& memory) const {
  const uint64_t max_steps = kMaxSteps + kMaxStepsPerByte * text.size();
  pcre2_set_match_limit(memory.context_.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(max_steps, UINT32_MAX)));
  const int found = pcre2_match(code_.get(), units(text), text.size(), begin, PCRE2_NO_UTF_CHECK,
                                memory.data_.get(), memory.context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  TRIREME_CHECK(found >= 0, source_, ": the pattern \"", shown(pattern_, 200),
                "\" takes too long on a text of ", text.size(), " bytes (", reason_of(found),
                "): give a tokenizer whose pattern does not try the same text again and again");
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(memory.data_.get());
  return TextRange{range[0], range[1]};
}

}  // namespace trireme::dataset::inline internal

// The keys of a config. Each is written once, in the struct that holds its value.
//
//   struct TrainConfig {
//     TRIREME_KEYS_BEGIN(TrainConfig)
//     TRIREME_KEY(int64_t, steps, 200, kMayChange, "optimizer steps", Range{1, kMaxSteps})
//     TRIREME_KEY(bool, overlap, true, kMayChange, "overlap reduction with the backward pass")
//     TRIREME_KEYS_END()
//   };
//
// declares plain members `steps` and `overlap` with these defaults. TrainConfig stays an aggregate.
// visit_keys<TrainConfig>() visits the keys in this order. Parsing, printing and `--help` are built
// on it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"

namespace trireme {

// The numbers from `minimum` to `maximum`, each included unless marked. long double holds every
// 64-bit integer exactly.
struct Range {
  long double minimum = std::numeric_limits<double>::lowest();
  long double maximum = std::numeric_limits<double>::max();
  bool above_minimum = false;
  bool below_maximum = false;
  std::string_view zero{};  // the name of 0, which is then also allowed: "auto"; integers only

  bool contains(long double value) const;  // never NaN
};
static_assert(std::numeric_limits<long double>::digits >= 64);

// "at least 1 and at most 100", "above 0 and below 1".
std::string to_text(const Range& range);

// Whether a run that resumes from a checkpoint may change a key.
enum class OnResume {
  kMustStay,   // decides what is computed or from which data: another value is another run
  kMayChange,  // decides how it is computed, how long, or what is written
  kNotKept,    // belongs to a single start
};

// The allowed names of a text key, when they are known only at run time.
using NamesFunction = std::vector<std::string> (*)();

// A key of struct Section whose value has type Value: a number with its range, a bool, a text, or
// an enum with the table of its names.
template <typename Section, typename Value>
struct Key {
  static constexpr bool kIsNumber = std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>;

  Key(std::string_view name, Value Section::*member, OnResume on_resume,
      std::string_view meaning) requires(std::is_same_v<Value, bool> ||
                                         std::is_same_v<Value, std::string>)
      : name(name), member(member), on_resume(on_resume), meaning(meaning) {}
  Key(std::string_view name, Value Section::*member, OnResume on_resume, std::string_view meaning,
      const Range& range) requires(kIsNumber)
      : name(name), member(member), on_resume(on_resume), meaning(meaning), range(range) {}
  Key(std::string_view name, Value Section::*member, OnResume on_resume, std::string_view meaning,
      NamesFunction names) requires(std::is_same_v<Value, std::string>)
      : name(name), member(member), on_resume(on_resume), meaning(meaning), names(names) {}
  template <size_t kSize>
  Key(std::string_view name, Value Section::*member, OnResume on_resume, std::string_view meaning,
      const Choice<Value> (&choices)[kSize]) requires(std::is_enum_v<Value>)
      : name(name), member(member), on_resume(on_resume), meaning(meaning), choices(choices) {}

  std::string_view name;
  Value Section::*member;
  OnResume on_resume;
  std::string_view meaning;
  Range range{};                             // numbers
  NamesFunction names = nullptr;             // texts; null: any
  std::span<const Choice<Value>> choices{};  // enums
};

template <int kLine>
struct KeyOfLine {};

#define TRIREME_KEYS_BEGIN(SectionType) \
  using Section = SectionType;          \
  static constexpr int kFirstKeyLine = __LINE__;
#define TRIREME_KEYS_END() static constexpr int kLastKeyLine = __LINE__;

// on_resume: an enumerator of OnResume. The arguments after the meaning are those of Key's
// constructor.
#define TRIREME_KEY(Type, name, initial, on_resume, ...) \
  TRIREME_NAMED_KEY(Type, name, #name, initial, on_resume, __VA_ARGS__)

// The same for a key whose name cannot be that of a member, such as "auto".
#define TRIREME_NAMED_KEY(Type, member, name, initial, on_resume, ...)                           \
  Type member = initial;                                                                         \
  static auto key_at(::trireme::KeyOfLine<__LINE__>) {                                           \
    return ::trireme::Key<Section, Type>(name, &Section::member, ::trireme::OnResume::on_resume, \
                                         __VA_ARGS__);                                           \
  }

// Calls visit(key) for every key of Section, in source order.
template <typename Section, typename Visit>
void visit_keys(const Visit& visit) {
  const auto visit_line = [&]<int kLine>(std::integral_constant<int, kLine>) {
    if constexpr (requires { Section::key_at(KeyOfLine<kLine>{}); }) {
      visit(Section::key_at(KeyOfLine<kLine>{}));
    }
  };
  [&]<int... kOffset>(std::integer_sequence<int, kOffset...>) {
    (visit_line(std::integral_constant<int, Section::kFirstKeyLine + kOffset>{}), ...);
  }
  (std::make_integer_sequence<int, Section::kLastKeyLine - Section::kFirstKeyLine>{});
}

}  // namespace trireme

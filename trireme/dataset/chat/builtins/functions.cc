#include "trireme/dataset/chat/builtins/functions.h"

#include <algorithm>
#include <ctime>

#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {

namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox has the same
constexpr size_t kMaxAttributes = 1000;
constexpr size_t kMaxAttributeBytes = 256;
constexpr size_t kMaxMessage = 1000;
constexpr size_t kMaxTimeFormat = 256;
constexpr std::string_view kTimeLetters = "aAbBcdDeFGgHIjmMpRSTuUVwWxXyY%";

Value make_range(Run& run, const CallArguments& arguments) {
  const bool has_begin = arguments.positional.size() > 1;
  const Parameters parameters =
      has_begin ? Parameters(run, "the function range", arguments, {"start", "stop", "step"}, 2)
                : Parameters(run, "the function range", arguments, {"stop"}, 1);
  const int64_t begin = has_begin ? parameters.integer(0, 0) : 0;
  const int64_t end = parameters.integer(has_begin ? 1 : 0, 0);
  const int64_t step = arguments.positional.size() > 2 ? parameters.integer(2, 1) : 1;
  if (step == 0) run.fail("the function range has a step of 0; use another");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(items) == kMaxRange) {
      run.fail("the function range makes more than ", kMaxRange, " integers; make fewer");
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::sequence(run, Shape::kRange, std::move(items));
}

// dict(a_dict_or_pairs, name=value).
Dict dict_of(Run& run, const char* callee, const CallArguments& arguments) {
  Dict dict;
  const Parameters parameters(run, callee, {.positional = arguments.positional}, {"from"});
  if (parameters.has(0)) {
    const Value& from = parameters.value(0);
    if (const Dict* other = from.as_dict()) {
      run.charge(other->items().size());
      dict = *other;
    } else {
      for (const Value& pair : items_of(run, from)) {
        const auto items = items_of(run, pair);
        if (items.size() != 2) {
          run.fail(callee, " is given ", items.size(), " values as a pair of key and value");
        }
        dict.set(run, items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(run, Value::text(run, name), value);
  return dict;
}

Value make_namespace(Run& run, FunctionContext& context, const CallArguments& arguments) {
  Namespace space;
  const Dict attributes = dict_of(run, "the function namespace", arguments);
  for (const auto& [key, value] : attributes.items()) {
    const Text* name = key.as_text();
    if (name) set_attribute(run, space, name->bytes, value);
  }
  context.namespaces.push_back(std::move(space));
  return Value(Value::Held(&context.namespaces.back()));
}

std::tm broken_down(std::chrono::local_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  std::tm broken{};
  broken.tm_year = static_cast<int>(date.year()) - 1900;
  broken.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  broken.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  broken.tm_hour = static_cast<int>(clock.hours().count());
  broken.tm_min = static_cast<int>(clock.minutes().count());
  broken.tm_sec = static_cast<int>(clock.seconds().count());
  broken.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  broken.tm_yday = static_cast<int>((day - new_year).count());
  return broken;
}

Value formatted_time(Run& run, const FunctionContext& context, const CallArguments& arguments) {
  const Parameters parameters(run, "the function strftime_now", arguments, {"format"}, 1);
  const std::string& pattern = parameters.text(0).bytes;
  if (!context.now) run.fail("asks for the time, and none is given; pass one to the rendering");
  if (pattern.size() > kMaxTimeFormat) run.fail("formats the time with a text that is too long");
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') continue;
    if (i + 1 < pattern.size() && pattern[i + 1] == '-') ++i;
    const char letter = ++i < pattern.size() ? pattern[i] : '\0';
    if (letter == '\0' || kTimeLetters.find(letter) == std::string_view::npos) {
      run.fail("formats the time with ", shown(pattern), "; % may stand before ", kTimeLetters);
    }
  }
  if (pattern.empty()) return Value::text(run, "");
  const std::tm time = broken_down(*context.now);
  // One character more, so that an empty result can be told from one that does not fit.
  const ClassicThread classic;
  std::string text(64 * kMaxTimeFormat, '\0');
  const size_t size = std::strftime(text.data(), text.size(), (pattern + ".").c_str(), &time);
  if (size == 0) run.fail("formats the time with ", shown(pattern), ", which fails");
  return Value::text(run, text.substr(0, size - 1));
}

}  // namespace

Value call_function(Run& run, FunctionContext& context, Function function,
                    const CallArguments& arguments) {
  switch (function) {
    case Function::kRange: return make_range(run, arguments);
    case Function::kDict: return Value::dict(run, dict_of(run, "the function dict", arguments));
    case Function::kNamespace: return make_namespace(run, context, arguments);
    case Function::kStrftimeNow: return formatted_time(run, context, arguments);
    case Function::kRaiseException: break;
  }
  const Parameters parameters(run, "the function raise_exception", arguments, {"message"}, 1);
  run.fail("the template refuses: ", shown(text_of(run, parameters.value(0)), kMaxMessage));
}

void set_attribute(Run& run, Namespace& space, const std::string& name, Value value) {
  if (name.starts_with('_')) {
    run.fail("sets the attribute ", shown(name), " of a namespace; begin its name with a letter");
  }
  if (name.size() > kMaxAttributeBytes) {
    run.fail("sets an attribute with a name of more than ", kMaxAttributeBytes, " bytes");
  }
  // The names are compared one by one.
  run.charge(1 + space.attributes.size() / 16);
  for (auto& [other, held] : space.attributes) {
    if (other != name) continue;
    held = std::move(value);
    return;
  }
  if (space.attributes.size() >= kMaxAttributes) {
    run.fail("gives a namespace more than ", kMaxAttributes, " attributes");
  }
  space.attributes.emplace_back(name, std::move(value));
}

}  // namespace trireme::dataset::chat

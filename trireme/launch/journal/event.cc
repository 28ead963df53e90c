#include "trireme/launch/journal/event.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kMaxEventWord = 256;  // of a host or a cause
// Some room for what other versions write.
constexpr JsonLimits kEventLimits{.max_bytes = kMaxEventBytes, .max_values = 256, .max_depth = 4};

// The beginning of `text`, on one line.
std::string cut(std::string_view text, size_t max_bytes) {
  std::string line(text.substr(0, utf8_prefix_bytes(text, max_bytes)));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r' || c == '\0'; }, ' ');
  return line;
}

// A text of at most `max_bytes`; "" when there is none.
std::string text_of(const JsonView& object, std::string_view key, size_t max_bytes) {
  const auto found = object.find(key);
  if (!found) return "";
  const std::string& text = found->text();
  if (text.size() > max_bytes) found->fail(concat("a text of at most ", max_bytes, " bytes"));
  return text;
}

int64_t integer_of(const JsonView& object, std::string_view key, int64_t minimum, int64_t maximum,
                   int64_t missing) {
  const auto found = object.find(key);
  return found ? found->integer(minimum, maximum) : missing;
}

}  // namespace

std::string to_json_line(const Event& event) {
  nlohmann::ordered_json object = {{"time", to_text(event.time)},
                                   {"event", name_of(kEventKinds, event.kind)},
                                   {"epoch", event.epoch}};
  if (event.step >= 0) object["step"] = event.step;
  if (!event.host.empty()) object["host"] = cut(event.host, kMaxEventWord);
  if (event.rank >= 0) object["rank"] = event.rank;
  if (event.seconds > 0 && std::isfinite(event.seconds)) object["seconds"] = event.seconds;
  if (!event.cause.empty()) object["cause"] = cut(event.cause, kMaxEventWord);
  if (!event.text.empty()) object["text"] = cut(event.text, kMaxEventText);
  return object.dump(-1, ' ', /*ensure_ascii=*/true,
                     nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

bool may_be_event(std::string_view line) {
  return line.starts_with('{') && line.ends_with('}') &&
         line.find("\"event\"") != std::string_view::npos;
}

Event parse_event(std::string_view line, const std::string& source) {
  const nlohmann::json value = parse_json(line, source, kEventLimits);
  const JsonView object(value, source);
  Event event;
  const auto time = parse_time(object.at("time").text());
  if (!time) object.at("time").fail("a time such as \"2026-11-25T07:12:01.123Z\"");
  event.time = *time;
  event.kind = choose(kEventKinds, source + ": event", object.at("event").word());
  event.epoch = integer_of(object, "epoch", 0, std::numeric_limits<int64_t>::max(), 0);
  event.step = integer_of(object, "step", -1, kMaxSteps, -1);
  event.rank = static_cast<int>(integer_of(object, "rank", -1, kMaxRanks - 1, -1));
  if (const auto seconds = object.find("seconds")) {
    event.seconds = seconds->number(0, static_cast<double>(kMaxSeconds));
  }
  // Replaced bytes are longer than those that were cut.
  event.host = text_of(object, "host", 3 * kMaxEventWord);
  event.cause = text_of(object, "cause", 3 * kMaxEventWord);
  event.text = text_of(object, "text", 3 * kMaxEventText);
  return event;
}

}  // namespace trireme::launch::inline internal

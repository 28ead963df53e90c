#include "trireme/launch/journal/event.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/launch/journal/line_file.h"

namespace trireme::launch {
namespace {

// Longer than any name of DNS; the text may be a path or a message.
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

double seconds_of(const JsonView& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? found->number(0, static_cast<double>(kMaxSeconds)) : 0;
}

}  // namespace

std::string to_json_line(const Event& event) {
  nlohmann::ordered_json object = {{"time", to_text(event.time)},
                                   {"event", name_of(kEventKinds, event.kind)},
                                   {"epoch", event.epoch}};
  if (event.step >= 0) object["step"] = event.step;
  if (!event.host.empty()) object["host"] = cut(event.host, kMaxEventWord);
  if (event.rank >= 0) object["rank"] = event.rank;
  // JSON has no infinity, and a line with one could not be read back.
  if (event.seconds > 0 && std::isfinite(event.seconds)) object["seconds"] = event.seconds;
  if (event.uptime > 0 && std::isfinite(event.uptime)) object["uptime"] = event.uptime;
  if (!event.cause.empty()) object["cause"] = cut(event.cause, kMaxEventWord);
  if (!event.text.empty()) object["text"] = cut(event.text, kMaxEventText);
  return object.dump(-1, ' ', /*ensure_ascii=*/true,
                     // ASCII: a log viewer, a pager and a JSON reader agree on these lines.
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
  event.seconds = seconds_of(object, "seconds");
  // Newer than the other keys: logs of older versions lack it.
  event.uptime = seconds_of(object, "uptime");
  // Replaced bytes are longer than those that were cut.
  event.host = text_of(object, "host", 3 * kMaxEventWord);
  event.cause = text_of(object, "cause", 3 * kMaxEventWord);
  event.text = text_of(object, "text", 3 * kMaxEventText);
  return event;
}

EventWriter::EventWriter(const std::filesystem::path& run_folder)
    : file_(run_folder / kEventFileName) {}

bool EventWriter::write(Event event) {
  if (event.time == WallTime()) event.time = std::chrono::system_clock::now();
  std::string lines = to_json_line(event);
  if (file_.num_lost() > 0) {
    // In one append with the event, so that the gap stands before the first event after it.
    const Event gap{.time = event.time,
                    .kind = EventKind::kGap,
                    .epoch = event.epoch,
                    .text = concat(file_.num_lost(), " events could not be written")};
    lines.insert(0, to_json_line(gap));
  }
  const bool is_written = file_.append(lines);
  // Only a written gap may be forgotten.
  if (is_written) file_.take_lost();
  return is_written;
}

bool has_events(const std::filesystem::path& run_folder) {
  return is_file(run_folder / kEventFileName);
}

EventLog read_events(const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / kEventFileName;
  open_regular_file(path);  // says why it cannot be read
  EventLog log;
  LineReader lines(path, {.max_line_bytes = kMaxEventBytes, .with_older = false});
  while (const auto line = lines.next()) {
    // A hostile or damaged file ends the reading and not this process.
    if (lines.num_bytes_read() > kMaxEventFileBytes || log.events.size() >= kMaxEvents ||
        log.num_unreadable >= kMaxUnreadableEvents) {
      log.is_cut = true;
      break;
    }
    if (line->empty()) continue;
    // Cheap, before parsing: an exception for each line of a wrong file took a second, now 20 ms.
    if (!may_be_event(*line)) {
      ++log.num_unreadable;
      continue;
    }
    try {
      log.events.push_back(parse_event(*line, path.string()));
    } catch (const ConfigError&) {
      ++log.num_unreadable;
    }
  }
  return log;
}

void EpochStarts::add(const Event& event) {
  const bool is_end = event.kind == EventKind::kEnd;
  if ((!is_end && event.kind != EventKind::kStart) || starts_.size() >= kMaxEvents) return;
  // A clock that was set back must not mix their order up.
  const WallTime time = starts_.empty() ? event.time : std::max(event.time, starts_.back().first);
  // An end counts as epoch 0: lines after it belong to no epoch that a later one has replaced.
  starts_.emplace_back(time, is_end ? 0 : event.epoch);
}

bool EpochStarts::is_over(int64_t epoch, WallTime time) const {
  const auto next =
      std::ranges::lower_bound(starts_, time, {}, &std::pair<WallTime, int64_t>::first);
  return next != starts_.begin() && std::prev(next)->second > epoch;
}

}  // namespace trireme::launch

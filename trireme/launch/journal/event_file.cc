#include "trireme/launch/journal/event_file.h"

#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/journal/line_reader.h"

namespace trireme::launch::inline internal {

EventWriter::EventWriter(const std::filesystem::path& run_folder)
    : file_(run_folder / kEventFileName) {
  file_.open();
}

void EventWriter::write(Event event) {
  if (event.time == WallTime()) event.time = std::chrono::system_clock::now();
  std::string lines = to_json_line(event);
  if (file_.num_lost() > 0) {
    const Event gap{.time = event.time,
                    .kind = EventKind::kGap,
                    .epoch = event.epoch,
                    .text = concat(file_.num_lost(), " events could not be written")};
    lines.insert(0, to_json_line(gap));
  }
  if (file_.append(lines)) file_.take_lost();
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
    if (lines.num_bytes_read() > kMaxEventFileBytes || log.events.size() >= kMaxEvents ||
        log.num_unreadable >= kMaxUnreadableEvents) {
      log.is_cut = true;
      break;
    }
    if (line->empty()) continue;
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

}  // namespace trireme::launch::inline internal

#include "trireme/launch/journal/log_file.h"

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {

LogWriter::LogWriter(const std::filesystem::path& file, const LogOptions& options)
    : options_(options),
      file_(file),
      splitters_{LineSplitter(options.max_line_bytes), LineSplitter(options.max_line_bytes),
                 LineSplitter(options.max_line_bytes)} {}

std::vector<std::string> LogWriter::write(LogStream stream, int64_t epoch, int64_t step,
                                          std::string_view text, WallTime now) {
  std::vector<std::string> lines = splitters_[static_cast<size_t>(stream)].add(text, now);
  for (const std::string& line : lines) append({now, epoch, step, stream, line});
  return lines;
}

std::vector<std::string> LogWriter::finish(int64_t epoch, int64_t step, WallTime now) {
  std::vector<std::string> all;
  for (const auto& [name, stream] : kLogStreams) {
    for (std::string& line : splitters_[static_cast<size_t>(stream)].finish()) {
      append({now, epoch, step, stream, line});
      all.push_back(std::move(line));
    }
  }
  return all;
}

void LogWriter::append(const LogLine& line) {
  std::string lines = to_text(line);
  if (file_.num_lost() > 0) {
    lines.insert(0,
                 to_text({line.time, line.epoch, line.step, LogStream::kAgent,
                          concat("WARNING: ", file_.num_lost(), " lines could not be written")}));
  }
  if (file_.append(lines)) file_.take_lost();
  if (file_.num_bytes() >= options_.max_bytes) file_.rotate();
}

}  // namespace trireme::launch::inline internal

#include "trireme/cli/predict/prediction_writer.h"

#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr size_t kWriteBytes = size_t{64} << 10;

// RFC 4180: in quotes where it has a separator, a quote or a line end.
std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) {
    cell += c;
    if (c == '"') cell += c;
  }
  return cell + '"';
}

// The shortest digits that read as the same number. Nothing for NaN, as in JSON null.
std::string digits(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  TRIREME_ASSERT(error == std::errc(), "a number of more than 32 digits");
  return {text, end};
}

std::string json_line(const dataset::Row& row, const train::Answer& answer) {
  nlohmann::ordered_json object = {{"path", row.path}};
  if (row.number > 0) object["row"] = row.number;
  if (!answer.classes.empty()) {
    object["class"] = answer.classes.front().name;
    object["probability"] = answer.classes.front().probability;
  }
  if (answer.classes.size() > 1) {
    nlohmann::ordered_json& top = object["top"];
    for (const train::Answer::Class& each : answer.classes) {
      top.push_back({{"class", each.name}, {"probability", each.probability}});
    }
  }
  for (const auto& [name, value] : answer.numbers) object[name] = value;
  // A path need not be UTF-8.
  return object.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string csv_line(const dataset::Row& row, const train::Answer& answer) {
  std::string line = csv_cell(row.path) + ",";
  if (row.number > 0) line += std::to_string(row.number);
  for (const train::Answer::Class& each : answer.classes) {
    line += "," + csv_cell(each.name) + "," + digits(each.probability);
  }
  for (const auto& [name, value] : answer.numbers) line += "," + digits(value);
  return line + "\n";
}

}  // namespace

std::string prediction_line(const dataset::Row& row, const train::Answer& answer,
                            PredictionFormat format) {
  return format == PredictionFormat::kCsv ? csv_line(row, answer) : json_line(row, answer);
}

std::string csv_header(const train::Answer& answer) {
  std::string line = "path,row";
  for (size_t k = 1; k <= answer.classes.size(); ++k) {
    const std::string end = k == 1 ? "" : "_" + std::to_string(k);
    line += ",class" + end + ",probability" + end;
  }
  for (const auto& [name, value] : answer.numbers) line += "," + csv_cell(name);
  return line + "\n";
}

PredictionWriter::PredictionWriter(const std::string& path, PredictionFormat format)
    : format_(format) {
  if (!path.empty()) file_.emplace(path);
}

void PredictionWriter::write(const dataset::Row& row, const train::Answer& answer) {
  if (num_rows_++ == 0 && format_ == PredictionFormat::kCsv) text_ += csv_header(answer);
  text_ += prediction_line(row, answer, format_);
  if (text_.size() >= kWriteBytes) flush();
}

void PredictionWriter::flush() {
  if (file_) {
    file_->write(text_);
  } else {
    const bool is_written = std::fwrite(text_.data(), 1, text_.size(), stdout) == text_.size() &&
                            std::fflush(stdout) == 0;
    TRIREME_CHECK(is_written,
                  "standard output cannot be written; make room, or name a file with "
                  "--output");
  }
  text_.clear();
}

void PredictionWriter::finish() {
  flush();
  if (file_) file_->commit();
}

}  // namespace trireme::cli

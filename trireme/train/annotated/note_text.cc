#include "trireme/train/annotated/note_text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"

namespace trireme::train {
namespace {

using nlohmann::json;

std::string mark_text(uint64_t mark) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(mark));
  return text;
}

uint64_t read_mark(const std::string& text) {
  uint64_t mark = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mark, 16);
  TRIREME_CHECK(error == std::errc() && end == text.data() + text.size(), "\"", shown(text),
                "\" is no mark of operators");
  return mark;
}

spmd::Splits read_splits(const std::string& text) {
  spmd::Splits splits;
  for (const std::string& part : split_list(text, ',')) {
    const size_t colon = part.find(':');
    TRIREME_CHECK(colon != std::string::npos, "\"", shown(part),
                  "\" is no split; expected axis:", "dimension or axis:sum");
    const std::string axis = part.substr(0, colon), what = part.substr(colon + 1);
    int dim = 0;
    const auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), dim);
    const bool is_dim = error == std::errc() && end == what.data() + what.size();
    TRIREME_CHECK(is_dim || what == "sum", "\"", shown(part),
                  "\" is no split; expected axis:", "dimension or axis:sum");
    splits = is_dim ? splits.split(dim, axis) : splits.partial(axis);
  }
  return splits;
}

spmd::StepNotes read_step(const json& all) {
  const json& operators = all.at("operators");
  spmd::StepNotes step{.num_forward = operators.at(0).get<int64_t>(),
                       .num_backward = operators.at(2).get<int64_t>(),
                       .forward_mark = read_mark(operators.at(1).get<std::string>()),
                       .backward_mark = read_mark(operators.at(3).get<std::string>())};
  for (const json& each : all.at("arguments")) {
    step.arguments.push_back({.number = each.at(0).get<int64_t>(),
                              .operation = each.at(1).get<std::string>(),
                              .argument = each.at(2).get<int>(),
                              .splits = read_splits(each.at(3).get<std::string>())});
  }
  return step;
}

void read_notes(std::string_view text, spmd::Annotations& notes) {
  const std::optional<json> parsed = try_parse_json(text);
  if (!parsed) throw std::invalid_argument("no JSON");
  const json& all = *parsed;
  for (const auto& [name, splits] : all.at("parameters").items())
    notes.parameters.push_back({name, read_splits(splits.get<std::string>())});
  for (const auto& [name, splits] : all.at("inputs").items()) {
    const auto found = std::ranges::find(notes.inputs, name, &spmd::Annotation::name);
    TRIREME_CHECK(found != notes.inputs.end(), "the task has no input \"", shown(name), "\"");
    found->splits = read_splits(splits.get<std::string>());
  }
  notes.step = read_step(all);
}

}  // namespace

std::string split_text(const spmd::Splits& splits) {
  std::string text;
  for (const spmd::Splits::Axis& axis : splits.axes()) {
    text += concat(text.empty() ? "" : ",", axis.name, ":",
                   axis.is_partial ? "sum" : std::to_string(axis.dim));
  }
  return text;
}

std::string note_text(const spmd::Annotations& all, const spmd::Annotations& own) {
  json text{{"parameters", json::object()},
            {"inputs", json::object()},
            {"operators",
             {all.step.num_forward, mark_text(all.step.forward_mark), all.step.num_backward,
              mark_text(all.step.backward_mark)}},
            {"arguments", json::array()}};
  for (size_t i = own.parameters.size(); i < all.parameters.size(); ++i)
    text["parameters"][all.parameters[i].name] = split_text(all.parameters[i].splits);
  for (size_t i = 0; i < all.inputs.size(); ++i) {
    if (all.inputs[i].splits == own.inputs[i].splits) continue;
    text["inputs"][all.inputs[i].name] = split_text(all.inputs[i].splits);
  }
  for (const spmd::ArgumentNote& note : all.step.arguments) {
    text["arguments"].push_back(
        {note.number, note.operation, note.argument, split_text(note.splits)});
  }
  return text.dump();
}

spmd::Annotations with_notes(spmd::Annotations own, std::string_view text) {
  if (text.empty()) return own;
  try {
    read_notes(text, own);
  } catch (const ConfigError& error) {
    throw ConfigError(concat("parallel.notes: ", error.what(), "; plan again, or leave it out"));
  } catch (const std::exception&) {
    throw ConfigError(concat("parallel.notes is \"", shown(std::string(text.substr(0, 60))),
                             "\"; expected what `shard --auto --write` prints or parallel.auto "
                             "finds"));
  }
  return own;
}

}  // namespace trireme::train

// The card of an exported model: README.md, in the form that model hubs show. It says what the
// model is, what it was trained on, how far and how well, and how to load it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/tasks/export/export_input.h"
#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

inline constexpr const char* kCardFile = "README.md";

using CardFacts = std::vector<std::pair<std::string, std::string>>;

struct ModelCard {
  std::string title{};
  std::string library{};   // "transformers"; "": none is named
  std::string pipeline{};  // "image-classification"; "": none is named
  std::string license{};   // "": none is stated
  CardFacts facts{};       // names and values, in their order
  std::string loading{};   // Python that loads the folder "FOLDER"; "": nothing is said
};

std::string to_markdown(const ModelCard& card);

// What is known of every run: the family, parameters, step, samples, the identity of its data, and
// its last metrics up to that step, those of the last evaluation among them.
// report: with its tensors counted
CardFacts facts_of(const ExportInput& input, const std::string& family,
                   const ExportOptions& options, const ExportReport& report);

}  // namespace trireme::tasks

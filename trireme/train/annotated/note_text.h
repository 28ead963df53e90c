// What a plan adds to a task's annotations, as text: the value of parallel.notes.
#pragma once

#include <string>
#include <string_view>

#include "trireme/spmd/annotate.h"

namespace trireme::train {

// One line of JSON:
//   {"parameters": {"fc1.weight": "tensor:0"}, "inputs": {"x": "tensor:0"},
//    "operators": [forward, their mark, backward, their mark],
//    "arguments": [[number, "aten::mm", argument, "tensor:1"], ...]}
// A split is "axis:dimension" or "axis:sum" for each axis, with commas in between.
// all: the task's annotations with those of the plan. own: without
std::string note_text(const spmd::Annotations& all, const spmd::Annotations& own);
// `own` with those of the text; "": nothing.
// Throws: ConfigError for a text that is none, and an input that the task does not have
spmd::Annotations with_notes(spmd::Annotations own, std::string_view text);
// "tensor:0,data:1"
std::string split_text(const spmd::Splits& splits);

}  // namespace trireme::train

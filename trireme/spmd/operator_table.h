// The operators that placed tensors take, as text: docs/reference/operators.md is this.
#pragma once

#include <string>

namespace trireme::spmd {

// A page of Markdown, made of the rules: each operator, and which of its dims may be split.
std::string operator_page();

}  // namespace trireme::spmd

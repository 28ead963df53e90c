#include "trireme/dataset/chat/builtins/filters.h"

#include <algorithm>

#include "trireme/base/choice.h"

namespace trireme::dataset::chat {

namespace {

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

constexpr NamedFilter kFilters[] = {{"abs", filter_abs},         {"capitalize", filter_capitalize},
                                    {"count", filter_length},    {"d", filter_default},
                                    {"default", filter_default}, {"dictsort", filter_dictsort},
                                    {"e", filter_escape},        {"escape", filter_escape},
                                    {"first", filter_first},     {"float", filter_float},
                                    {"format", filter_format},   {"indent", filter_indent},
                                    {"int", filter_int},         {"items", filter_items},
                                    {"join", filter_join},       {"last", filter_last},
                                    {"length", filter_length},   {"list", filter_list},
                                    {"lower", filter_lower},     {"map", filter_map},
                                    {"max", filter_max},         {"min", filter_min},
                                    {"reject", filter_reject},   {"rejectattr", filter_rejectattr},
                                    {"replace", filter_replace}, {"reverse", filter_reverse},
                                    {"round", filter_round},     {"safe", filter_safe},
                                    {"select", filter_select},   {"selectattr", filter_selectattr},
                                    {"sort", filter_sort},       {"string", filter_string},
                                    {"sum", filter_sum},         {"title", filter_title},
                                    {"tojson", filter_tojson},   {"trim", filter_trim},
                                    {"unique", filter_unique},   {"upper", filter_upper}};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found == std::end(kFilters) ? nullptr : found->function;
}

std::string filter_names() { return trireme::joined(names_of(kFilters)); }

}  // namespace trireme::dataset::chat

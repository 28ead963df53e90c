// The filters by their functions: `filters.cc` has their names.
#pragma once

#include "trireme/dataset/chat/builtins/call.h"

namespace trireme::dataset::chat {

// Each takes the arguments that Jinja's filter of that name takes.
// Throws: ConfigError when the input or an argument is not as expected

// Of texts and numbers (text_filters.cc).
Value filter_abs(Run& run, const Value& input, const CallArguments& arguments);
Value filter_capitalize(Run& run, const Value& input, const CallArguments& arguments);
Value filter_default(Run& run, const Value& input, const CallArguments& arguments);
Value filter_escape(Run& run, const Value& input, const CallArguments& arguments);
Value filter_float(Run& run, const Value& input, const CallArguments& arguments);
Value filter_format(Run& run, const Value& input, const CallArguments& arguments);
Value filter_indent(Run& run, const Value& input, const CallArguments& arguments);
Value filter_int(Run& run, const Value& input, const CallArguments& arguments);
Value filter_lower(Run& run, const Value& input, const CallArguments& arguments);
Value filter_replace(Run& run, const Value& input, const CallArguments& arguments);
Value filter_round(Run& run, const Value& input, const CallArguments& arguments);
Value filter_safe(Run& run, const Value& input, const CallArguments& arguments);
Value filter_string(Run& run, const Value& input, const CallArguments& arguments);
Value filter_title(Run& run, const Value& input, const CallArguments& arguments);
Value filter_tojson(Run& run, const Value& input, const CallArguments& arguments);
Value filter_trim(Run& run, const Value& input, const CallArguments& arguments);
Value filter_upper(Run& run, const Value& input, const CallArguments& arguments);

// Of lists and dicts (sequence_filters.cc).
Value filter_first(Run& run, const Value& input, const CallArguments& arguments);
Value filter_items(Run& run, const Value& input, const CallArguments& arguments);
Value filter_join(Run& run, const Value& input, const CallArguments& arguments);
Value filter_last(Run& run, const Value& input, const CallArguments& arguments);
Value filter_length(Run& run, const Value& input, const CallArguments& arguments);
Value filter_list(Run& run, const Value& input, const CallArguments& arguments);
Value filter_map(Run& run, const Value& input, const CallArguments& arguments);
Value filter_reject(Run& run, const Value& input, const CallArguments& arguments);
Value filter_rejectattr(Run& run, const Value& input, const CallArguments& arguments);
Value filter_reverse(Run& run, const Value& input, const CallArguments& arguments);
Value filter_select(Run& run, const Value& input, const CallArguments& arguments);
Value filter_selectattr(Run& run, const Value& input, const CallArguments& arguments);

// That compare the items (order_filters.cc).
Value filter_dictsort(Run& run, const Value& input, const CallArguments& arguments);
Value filter_max(Run& run, const Value& input, const CallArguments& arguments);
Value filter_min(Run& run, const Value& input, const CallArguments& arguments);
Value filter_sort(Run& run, const Value& input, const CallArguments& arguments);
Value filter_sum(Run& run, const Value& input, const CallArguments& arguments);
Value filter_unique(Run& run, const Value& input, const CallArguments& arguments);

}  // namespace trireme::dataset::chat

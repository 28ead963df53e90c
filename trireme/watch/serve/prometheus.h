// The newest numbers of the runs as Prometheus's text format 0.0.4, for GET /metrics.
#pragma once

#include <string>
#include <string_view>

#include "trireme/watch/run/run_list.h"

namespace trireme::watch {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

// A gauge trireme_<metric>{run="..."} for each metric, trireme_rank_<column>{run="...",rank="3"}
// for each column of the ranks, and trireme_run_state{run="...",state="running"} of 0 and 1.
// Source: prometheus.io/docs/instrumenting/exposition_formats
std::string prometheus_text(RunList& runs);

// Letters, digits and underscores; others become underscores.
std::string prometheus_name(std::string_view name);
// With escapes of backslash, quotation mark and line feed.
std::string prometheus_label(std::string_view value);
// With escapes of backslash and line feed.
std::string prometheus_help(std::string_view text);

}  // namespace trireme::watch

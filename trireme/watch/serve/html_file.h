// The page of a run as one file, to be sent and opened anywhere: styles, scripts and numbers are in
// it, and it makes no request.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/assets.h"

namespace trireme::watch {

inline constexpr size_t kMostHtmlBytes = 5'000'000;

// The answers that the file holds, as (key, JSON): "/api/series?run=0&name=loss". What matters most
// comes first; with more than `most_bytes` the rest is left out.
std::vector<std::pair<std::string, std::string>> answers_in_file(RunList& runs, size_t most_bytes);

// The page made of index.html, the other assets that it names, and the answers. A policy in the
// file allows its own scripts and styles, by their hashes, and nothing else.
// Throws: InternalError when the assets have no index.html
std::string html_of(std::span<const Asset> assets,
                    const std::vector<std::pair<std::string, std::string>>& answers);

// Puts the file at `path`, whole or not at all. Reads the runs to their ends first.
// Returns its size.
// Throws: Error when it cannot be written
size_t write_html(RunList& runs, const std::filesystem::path& path);

// "<" is written as an escape, so that no text of a run ends the block that holds it.
std::string without_tags(std::string json);

}  // namespace trireme::watch

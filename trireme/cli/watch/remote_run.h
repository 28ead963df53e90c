// A run on another host, as `trireme watch HOST:FOLDER` names it. Pure but for a look whether such
// a folder exists here.
#pragma once

#include <string>

namespace trireme::cli {

// Whether a word is HOST:FOLDER and no folder here has that name.
bool is_remote_run(const std::string& word);

// The command that watches it there and brings the page's port here.
// Throws: ConfigError for a host that is no name of one
std::string tunnel_command(const std::string& word, int port);

}  // namespace trireme::cli

// Manifests as someone writes them who knows the format: any structure, and the right checksum.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/saved.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

// `rest` is what follows the first line.
inline std::string signed_text(const std::string& rest) {
  return "{\"checksum\": \"" + checksum(std::as_bytes(std::span(rest))) + "\",\n" + rest;
}

// `text`, a manifest's, with its JSON edited.
inline std::string edited(const std::string& text,
                          const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json body = nlohmann::json::parse(text);
  body.erase("checksum");
  edit(body);
  return signed_text(body.dump(1).substr(2));
}

// The same of the file in a checkpoint's folder.
inline void edit_manifest(const std::filesystem::path& folder,
                          const std::function<void(nlohmann::json&)>& edit) {
  overwrite(folder / kManifestName, edited(read_file(folder / kManifestName), edit));
}

}  // namespace trireme::checkpoint

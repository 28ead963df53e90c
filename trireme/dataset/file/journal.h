// How far an interrupted preparation came: a file beside what it has written.
#pragma once

#include <filesystem>
#include <functional>

#include <nlohmann/json_fwd.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/file/digest.h"

namespace trireme::dataset {

// Where a preparation keeps what it has done: in a folder of the work folder, which one process has
// locked. Those of other identities go when this one has a journal of its own.
struct PreparationPlace {
  std::filesystem::path work;
  Digest identity;  // stands for all that decides what is written

  std::filesystem::path folder() const { return work / to_text(identity); }
};

// Whether the work folder has what an interrupted preparation left, of any identity.
bool has_journal(const std::filesystem::path& work);

// Makes the folder of the place, and gives the journal in it to `go_on`.
// Returns whether there is one. One that is damaged or ahead of its files, of which `go_on` throws
// an Error, is removed.
bool go_on_from_journal(const PreparationPlace& place,
                        const std::function<void(const JsonView& journal)>& go_on);

// In place of the journal before. It is on the disk when the call returns, and what it counts has
// to be there before.
// Throws: Error when the disk is full
void write_journal(const PreparationPlace& place, const nlohmann::json& journal);

}  // namespace trireme::dataset

#include "trireme/cli/output_file.h"

#include <fstream>

#include "trireme/base/error.h"
#include "trireme/cli/printable.h"

namespace trireme::cli::inline internal {

void write_output(std::string_view option, const std::string& path, std::string_view text) {
  std::ofstream file(path);
  file << text;
  file.close();
  TRIREME_CHECK(!file.fail(), option, ": cannot write ", printable(path));
}

}  // namespace trireme::cli::inline internal

// A program that has chosen another locale than the classic one: numbers read 1.234,5.
#pragma once

#include <clocale>
#include <cstdlib>
#include <locale>
#include <stdexcept>
#include <string>

#include "tests/harness/temporary_folder.h"

namespace trireme::harness {

// For a scope. Compiles the locale, as few machines have it; needs Debian's `locales`.
class ForeignLocale {
 public:
  explicit ForeignLocale(const std::string& language = "de_DE") {
    const std::string name = language + ".UTF-8";
    const std::string command =
        "localedef -i " + language + " -f UTF-8 '" + (folder_ / name).string() + "' 2>&1";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
    ::setenv("LOCPATH", folder_.path().c_str(), /*overwrite=*/1);
    std::locale::global(std::locale(name));
  }
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;
  ~ForeignLocale() {
    std::locale::global(std::locale::classic());
    ::unsetenv("LOCPATH");
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace trireme::harness

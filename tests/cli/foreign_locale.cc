// Preloaded into the program, whose user has set a locale before anything else: see locale_test.py.
#include <cstdlib>
#include <locale>

namespace {

__attribute__((constructor)) void set_locale() {
  if (const char* const name = std::getenv("TRIREME_TEST_LOCALE")) {
    std::locale::global(std::locale(name));
  }
}

}  // namespace

// Preloaded into the program by tests: a host whose file systems are slow.
//   SLOW_START   seconds that `train` takes until its main(), as from a cold network file system;
//                before them it writes a line, as a dynamic linker may
//   SLOW_FOLDER  a folder of which no file opens while the file SLOW_FOLDER.stuck exists
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

__attribute__((constructor)) void start(int argc, char** argv) {
  const char* const seconds = std::getenv("SLOW_START");
  if (seconds == nullptr || argc < 2 || std::strcmp(argv[1], "train") != 0) return;
  std::fprintf(stderr, "a line from before main()\n");
  usleep(static_cast<useconds_t>(1e6 * std::atof(seconds)));
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const char* const folder = std::getenv("SLOW_FOLDER");
  if (folder != nullptr && std::string(path).starts_with(std::string(folder) + "/")) {
    while (access((std::string(folder) + ".stuck").c_str(), F_OK) == 0) usleep(10'000);
  }
  static const auto real = reinterpret_cast<decltype(&::open)>(dlsym(RTLD_NEXT, "open"));
  return real(path, flags, mode);
}

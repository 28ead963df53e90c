// hostile_readers_test: damaged inputs of every format, given to their readers under the address
// and undefined-behaviour sanitizers. A reader may refuse an input with one of the project's
// errors, or make sense of it, within bounds of time and memory. Anything else is a failure.
//   hostile_readers_test --seconds 6 --seed 1 --only toml      what CI runs
//   hostile_readers_test --seconds 3600 --seed 2               an hour on all formats in turn
//   hostile_readers_test --only toml --seed 1 --case 1234      one case again
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <sanitizer/common_interface_defs.h>
#include <sys/time.h>
#include <unistd.h>
#include <csignal>

#include "tests/harness/temporary_folder.h"
#include "tests/hostile/format.h"
#include "trireme/base/error.h"

// libtorch is not compiled with the sanitizers, so its containers and its leaks are not checked. A
// reader that wants half a gigabyte for one of these small files is wrong.
extern "C" const char* __asan_default_options() {
  return "detect_container_overflow=0:detect_odr_violation=0:detect_leaks=0:"
         "max_allocation_size_mb=512:hard_rss_limit_mb=3072:allocator_may_return_null=0:"
         "handle_abort=1";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1:halt_on_error=1"; }

namespace trireme::hostile {
namespace {

constexpr size_t kMaxMessageBytes = 16384;
constexpr int kMaxCaseSeconds = 10;  // of processor time

struct Arguments {
  double seconds = 5;
  uint64_t seed = 1;
  std::string only;  // names separated by commas; empty: all
  std::optional<uint64_t> one_case;
  std::string keep;  // where the folder stays, to look at
};

// Names the case under way, for the report of a failure.
char current[160];

void print_current() { static_cast<void>(!write(STDERR_FILENO, current, strlen(current))); }

void on_timeout(int) {
  constexpr char kWhat[] = "FAILED: a case took more than its time\n";
  static_cast<void>(!write(STDERR_FILENO, kWhat, sizeof(kWhat) - 1));
  print_current();
  std::abort();  // with the sanitizer's stack trace
}

void set_timer(int seconds) {
  const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

uint64_t seed_of(uint64_t seed, const std::string& format, uint64_t number) {
  uint64_t state = seed * 0x9e3779b97f4a7c15 + number;
  for (const char c : format) state = Random(state ^ static_cast<unsigned char>(c)).next();
  return state;
}

void run_case(Format& format, const Arguments& arguments, uint64_t number) {
  std::snprintf(current, sizeof(current),
                "again: hostile_readers_test --only %s --seed %llu --case %llu\n",
                format.name().c_str(), static_cast<unsigned long long>(arguments.seed),
                static_cast<unsigned long long>(number));
  Random random(seed_of(arguments.seed, format.name(), number));
  set_timer(kMaxCaseSeconds);
  format.write(random);
  format.read();
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--seconds") arguments.seconds = std::stod(value);
    if (name == "--seed") arguments.seed = std::stoull(value);
    if (name == "--only") arguments.only = value;
    if (name == "--case") arguments.one_case = std::stoull(value);
    if (name == "--keep") arguments.keep = value;
  }
  return arguments;
}

int run(const Arguments& arguments) {
  const harness::TemporaryFolder temporary;
  const std::filesystem::path folder =
      arguments.keep.empty() ? temporary.path() : std::filesystem::path(arguments.keep);
  Formats formats;
  add_labelled_formats(formats);
  add_compressed_formats(formats, folder);
  add_row_formats(formats, folder);
  add_text_formats(formats, folder);
  add_tokenizer_formats(formats, folder);
  add_binary_formats(formats, folder);
  add_launch_formats(formats);
  add_checkpoint_formats(formats, folder);
  add_foreign_formats(formats, folder);
  add_reference_formats(formats, folder);
  add_journal_formats(formats, folder);
  add_series_formats(formats, folder);
  add_job_formats(formats, folder);
  add_recommend_formats(formats, folder);
  add_table_formats(formats, folder);
  add_link_formats(formats);
  add_watch_formats(formats, folder);
  add_http_formats(formats);
#ifdef TRIREME_HAVE_CURL
  add_store_formats(formats, folder);
#endif
  add_server_formats(formats, folder);
  add_learner_formats(formats);
  add_outputs_formats(formats, folder);
#ifdef TRIREME_HAVE_TOKENIZER_JSON
  add_chat_formats(formats, folder);
#endif
#ifdef TRIREME_HAVE_ARROW
  add_column_formats(formats, folder);
  add_nested_formats(formats, folder);
#endif
#ifdef TRIREME_HAVE_IMAGES
  add_image_formats(formats, folder);
#endif
  if (!arguments.only.empty()) {
    std::erase_if(formats, [&](const auto& format) {
      return ("," + arguments.only + ",").find("," + format->name() + ",") == std::string::npos;
    });
  }
  require(!formats.empty(), "there is no format " + arguments.only);
  std::signal(SIGPROF, on_timeout);
  __sanitizer_set_death_callback(print_current);
  if (arguments.one_case) {
    for (const auto& format : formats) run_case(*format, arguments, *arguments.one_case);
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t number = 0;
  double next_report = 60;
  for (; elapsed() < arguments.seconds; ++number) {
    if (elapsed() > next_report) {
      std::fprintf(stderr, "%.0f of %.0f s, %llu cases of each format\n", elapsed(),
                   arguments.seconds, static_cast<unsigned long long>(number));
      next_report += 60;
    }
    for (const auto& format : formats) run_case(*format, arguments, number);
  }
  set_timer(0);
  std::string names;
  for (const auto& format : formats) names += " " + format->name();
  std::printf("%llu cases each of%s, seed %llu: no failure\n",
              static_cast<unsigned long long>(number), names.c_str(),
              static_cast<unsigned long long>(arguments.seed));
  return 0;
}

}  // namespace

bool expect_refusal_or_sense(const std::function<void()>& reader) {
  std::string message;
  try {
    reader();
    return true;
  } catch (const Failure&) {
    throw;
  } catch (const InternalError& error) {
    throw Failure(std::string("a bug of ours: ") + error.what());
  } catch (const Error& error) {
    message = error.what();
  } catch (const std::exception& error) {
    throw Failure(std::string("none of the project's errors: ") + error.what());
  }
  require(message.find('\n') == std::string::npos, "a message of several lines: " + message);
  require(message.find("json.exception") == std::string::npos, "the parser's words: " + message);
  require(!message.empty() && message.size() <= kMaxMessageBytes,
          "a message of " + std::to_string(message.size()) + " bytes: " + message.substr(0, 200));
  return false;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw Failure(what);
}

void put_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string get_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace trireme::hostile

int main(int argc, char** argv) {
  using namespace trireme::hostile;
  const Arguments arguments = parse(argc, argv);
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED: %s\n%s", error.what(), current);
    return 1;
  }
}

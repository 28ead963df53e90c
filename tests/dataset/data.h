// What several tests of this folder need: small token files, random bytes, expected messages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/indexed_file_writer.h"

namespace trireme::dataset {

using harness::names_in;
using harness::TemporaryFolder;

// One document a vector.
inline void write_token_file(const std::string& prefix,
                             const std::vector<std::vector<int32_t>>& documents,
                             int64_t vocab_size = 1000) {
  IndexedFileWriter writer(prefix, vocab_size);
  for (const auto& document : documents) writer.add_document(document);
  writer.finish();
}

// 0, 1, 2, ... in one document: a token says where it lies.
inline void write_counting_file(const std::string& prefix, int32_t num_tokens) {
  std::vector<int32_t> tokens(num_tokens);
  for (int32_t i = 0; i < num_tokens; ++i) tokens[i] = i;
  write_token_file(prefix, {tokens}, num_tokens);
}

inline std::vector<int64_t> read_all(const IndexedFile& file) {
  std::vector<int64_t> tokens(file.num_tokens());
  file.read(0, tokens);
  return tokens;
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  OutputFile(path).write(text);
}

inline std::string random_bytes(RandomKey key, size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(random_bits(key, i)[0]));
  return bytes;
}

// Runs `call` and expects a ConfigError of one line that holds every one of `parts`.
template <typename Call>
void expect_config_error(Call&& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one with \"" << parts.at(0) << '"';
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const auto& part : parts)
      EXPECT_NE(message.find(part), std::string::npos)
          << '"' << part << "\" is not in: " << message;
  }
}

}  // namespace trireme::dataset

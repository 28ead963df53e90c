#include "trireme/tasks/language/token_identity.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/samples/blended_source.h"
#include "trireme/dataset/token_source.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

class TokenIdentityTest : public ::testing::Test {
 protected:
  // Of tokens that are the bytes of `text`.
  train::DataIdentity prepare(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / (name + ".txt"), std::ios::binary) << text;
    dataset::prepare({.inputs = {(folder_ / (name + ".txt")).string()}, .output = prefix(name)});
    return identity(name);
  }
  std::string prefix(const std::string& name) const { return (folder_ / name).string(); }
  train::DataIdentity identity(const std::string& name) const {
    return identify(dataset::TokenStream(prefix(name), 0), *dataset::make_bytes_tokenizer());
  }

  harness::TemporaryFolder folder_;
};

std::string text(size_t size, char letter = 'a') { return std::string(size, letter); }

TEST_F(TokenIdentityTest, IsOfTheContentWhateverThePath) {
  const train::DataIdentity a = prepare("a", text(5000));
  EXPECT_TRUE(a.is_known());
  EXPECT_EQ(a.counts.at("num_documents"), 1);
  EXPECT_EQ(a.counts.at("num_tokens"), 5001);  // and the end of the document
  EXPECT_EQ(a, prepare("b", text(5000)));
  fs::create_directory(folder_ / "else");
  for (const char* end : {".bin", ".idx"}) {
    fs::copy_file(prefix("a") + end, (folder_ / "else" / "where").string() + end);
  }
  EXPECT_EQ(a, identity("else/where"));
  EXPECT_FALSE(train::DataIdentity().is_known());
}

TEST_F(TokenIdentityTest, OtherLengthsAreOtherData) {
  const train::DataIdentity a = prepare("a", text(5000));
  const train::DataIdentity b = prepare("b", text(5002));
  EXPECT_NE(a.checksums.at("index"), b.checksums.at("index"));
  EXPECT_EQ(train::to_text(b), "1 documents, 5003 tokens");
}

// From a file without tokens to one of many places: the first token, the last and all between
// when they are few.
TEST_F(TokenIdentityTest, OtherTokensOfTheSameLengthsAreOtherData) {
  for (const size_t size : {1u, 2u, 63u, 64u, 1023u, 1024u, 65536u, 200'000u}) {
    SCOPED_TRACE(size);
    const train::DataIdentity a = prepare("a", text(size));
    const train::DataIdentity b = prepare("b", text(size, 'b'));
    EXPECT_EQ(a.checksums.at("index"), b.checksums.at("index"));
    EXPECT_NE(a.checksums.at("tokens"), b.checksums.at("tokens"));
    std::string changed = text(size);
    changed.front() = 'b';
    EXPECT_NE(a.checksums.at("tokens"), prepare("front", changed).checksums.at("tokens"));
    changed = text(size);
    changed.back() = 'b';
    EXPECT_NE(a.checksums.at("tokens"), prepare("back", changed).checksums.at("tokens"));
    changed = text(size);
    changed[size / 2] = 'b';
    if (size <= 65536) {
      EXPECT_NE(a.checksums.at("tokens"), prepare("middle", changed).checksums.at("tokens"));
    }
  }
}

TEST_F(TokenIdentityTest, AnotherTokenizerIsOtherData) {
  struct Shifted : dataset::Tokenizer {
    std::string model;
    dataset::TokenizerKind kind() const override { return dataset::TokenizerKind::kBpe; }
    int64_t vocab_size() const override { return 300; }
    int32_t end_of_document() const override { return 256; }
    std::vector<int32_t> encode(std::string_view) const override { return {}; }
    std::string decode(std::span<const int32_t>) const override { return ""; }
    std::string serialize() const override { return model; }
  } one, other;
  one.model = "a model";
  other.model = "another";
  const train::DataIdentity bytes = prepare("a", text(100));
  const dataset::TokenStream file(prefix("a"), 0);
  const train::DataIdentity a = identify(file, one);
  EXPECT_EQ(a, identify(file, one));
  EXPECT_NE(a, identify(file, other));
  EXPECT_NE(a, bytes);
  EXPECT_EQ(a.checksums.at("tokens"), bytes.checksums.at("tokens"));
}

TEST_F(TokenIdentityTest, OfABlendHasItsSourcesTheirOrderAndShares) {
  prepare("a", text(5000));
  prepare("b", text(700, 'b'));
  const auto tokenizer = dataset::make_bytes_tokenizer();
  using Part = dataset::BlendedSource::Part;
  const auto part = [&](const std::string& name, const std::string& file, int64_t weight) {
    return Part{name, "", weight,
                std::make_shared<const dataset::TokenSource>(
                    prefix(file), dataset::TokenOptions{.sequence_length = 8})};
  };
  const auto identity_of = [&](std::vector<Part> parts) {
    const dataset::BlendedSource source(std::move(parts), true);
    return identify(source, *tokenizer);
  };
  const train::DataIdentity blend = identity_of({part("a", "a", 7), part("b", "b", 3)});
  EXPECT_EQ(blend.checksums.at("a tokens"), identity("a").checksums.at("tokens"));
  EXPECT_EQ(blend.checksums.at("b index"), identity("b").checksums.at("index"));
  EXPECT_EQ(blend.counts.at("num_tokens"), 5001 + 701);
  EXPECT_EQ(blend, identity_of({part("a", "a", 7), part("b", "b", 3)}));
  EXPECT_NE(blend, identity_of({part("a", "a", 3), part("b", "b", 7)}));
  EXPECT_NE(blend, identity_of({part("b", "b", 3), part("a", "a", 7)}));
  EXPECT_NE(blend, identity_of({part("a", "b", 7), part("b", "a", 3)}));
  EXPECT_NE(blend, identity_of({part("a", "a", 7)}));
  const dataset::TokenSource alone(prefix("a"), {.sequence_length = 8});
  EXPECT_EQ(identify(alone, *tokenizer), identity("a"));
}

}  // namespace
}  // namespace trireme::tasks

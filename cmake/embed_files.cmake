# cmake -D folder=F -D "names=a|b" -D header=H -D space=N -D output=O -P embed_files.cmake: see TriremeAssets.cmake.
string(REPLACE "|" ";" names "${names}")
set(arrays "")
set(entries "")
set(index 0)
foreach(name IN LISTS names)
  file(SIZE "${folder}/${name}" size)
  file(READ "${folder}/${name}" digits HEX)
  # Sixteen bytes a line. The zero at the end is for an empty file, and is not part of the content.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${digits}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kAsset${index}[] = {\n${bytes}0x00};\n")
  string(APPEND entries "    {\"${name}\", {reinterpret_cast<const char*>(kAsset${index}), ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${output}" "// Made by cmake/embed_files.cmake from ${folder}.
#include \"${header}\"

namespace ${space} {
namespace {

${arrays}
}  // namespace

std::span<const Asset> assets() {
  static const Asset kAssets[] = {
${entries}  };
  return kAssets;
}

}  // namespace ${space}
")

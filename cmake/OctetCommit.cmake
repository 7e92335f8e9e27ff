# Writes FILE, the definition of octet::Commit(), when the commit of SOURCE_DIR is another than the
# file says. Run at every build: cmake -DSOURCE_DIR=... -DFILE=... -P OctetCommit.cmake
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(text "#include \"tools/support/commit.h\"

namespace octet {

absl::string_view Commit() { return \"${commit}\"; }

}  // namespace octet
")
if(EXISTS ${FILE})
  file(READ ${FILE} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${FILE} "${text}")
endif()

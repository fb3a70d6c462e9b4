# cmake -DSOURCE=… -DIN=… -DOUT=… -P write_build_info.cmake: fills in the commit.
set(commit "$ENV{SINTER_COMMIT}")  # for a copy without .git
if(NOT commit AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(READ "${IN}" text)
string(REPLACE "%COMMIT%" "${commit}" text "${text}")
set(old "")
if(EXISTS "${OUT}")
  file(READ "${OUT}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${OUT}" "${text}")
endif()

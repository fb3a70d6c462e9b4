# sinter_embed(TARGET FILE SYMBOL): the text of FILE as `const std::string_view sinter::embedded::SYMBOL` in TARGET,
# written again at the next build when FILE changes.

# The build runs this file as a script too, with IN, OUT and SYMBOL.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${IN}" text)
  string(FIND "${text}" ")sinter_embed\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${IN} holds )sinter_embed\", which would end the literal it becomes")
  endif()
  file(WRITE "${OUT}" "// Written by the build.\n#include <string_view>\n\nnamespace sinter::embedded {\n"
    "extern const std::string_view ${SYMBOL};\n"
    "constinit const std::string_view ${SYMBOL} = R\"sinter_embed(${text})sinter_embed\";\n}\n")
  return()
endif()

set(SINTER_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(sinter_embed target file symbol)
  get_filename_component(in ${file} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
  set(out ${PROJECT_BINARY_DIR}/generated/embedded_${symbol}.cpp)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${in} -DOUT=${out} -DSYMBOL=${symbol} -P ${SINTER_EMBED_SCRIPT}
    DEPENDS ${in} ${SINTER_EMBED_SCRIPT} COMMENT "Embedding ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

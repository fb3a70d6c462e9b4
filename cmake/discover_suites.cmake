# Run by ctest: one test per GoogleTest suite of ${program}, tests named *Gpu* left out (they are the entry `gpu`).
if(NOT EXISTS "${program}")
  add_test(sinter_tests_NOT_BUILT sinter_tests_NOT_BUILT)
  return()
endif()
execute_process(COMMAND "${program}" --gtest_list_tests --gtest_filter=-*Gpu*
                OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
if(failed)
  add_test(sinter_tests_DOES_NOT_START "${program}" --gtest_list_tests)
  return()
endif()
string(REGEX MATCHALL "(^|\n)[A-Za-z_0-9/]+\\." suites "${listing}")  # tests are indented, suites are not
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  add_test("${suite}" "${program}" "--gtest_filter=${suite}.*-*Gpu*" --gtest_brief=0)
  set_tests_properties("${suite}" PROPERTIES TIMEOUT 300)
endforeach()

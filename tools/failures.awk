# Reads CTest's LastTest.log and prints, of each failed entry, what its failed test cases said; of a process that died,
# also the case it died in. Passed cases stay in the log.
/^[0-9]+\/[0-9]+ Testing: / { name = $0; sub(/^[^:]*: /, "", name); kept = held = ""; inside = 0 }
/^<end of output>/ { kept = kept held; held = ""; inside = 0 }
inside {
  if (/^\[ RUN      \]/) { kept = kept held; held = "" }
  held = held $0 "\n"
  if (/^\[       OK \]/ || /^\[  SKIPPED \].*ms\)$/) held = ""
  if (/^\[  FAILED  \].*ms\)$/) { kept = kept held; held = "" }
}
/^Output:$/ { getline; inside = 1 }
/^Test Failed\.$/ {
  lines = split(kept, line, "\n")
  print "\n---- failed: " name " ----"
  for (i = 1; i < lines; i++) {
    if (i == 200) { print "… " (lines - i) " more lines in " FILENAME; break }
    print line[i]
  }
}

#include <sinter/sinter.hpp>

int main(int argc, char** argv) { return sinter::lab_main(argc, argv); }
